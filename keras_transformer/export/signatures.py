"""The functions of an export, from strings to strings. Each is one TensorFlow graph.

Shapes: B batch (texts), K hypotheses of each text, L maximum output length, T target length, S
source length, H heads.
"""

from typing import NamedTuple

import tensorflow as tf
from keras import ops

from keras_transformer.decoding import decode, score
from keras_transformer.export import sentences
from keras_transformer.export.length_buckets import search_by_length_buckets
from keras_transformer.models.translation_model import output_limits
from keras_transformer.special_ids import PAD_ID, UNKNOWN_ID, shift_right

TEXT = tf.TensorSpec([None], tf.string, "text")
TARGET = tf.TensorSpec([None], tf.string, "target")
IDS = tf.TensorSpec([None, None], tf.int32, "ids")


class _Found(NamedTuple):
    """The result of a search for a batch of texts; a blank text has no ids and score 0."""

    source_ids: tf.Tensor  # (B, S) int32
    target_ids: tf.Tensor  # (B, K, L) int32, ended by the end token, then padding
    scores: tf.Tensor  # (B, K) float32
    truncated: tf.Tensor  # (B, K) bool, as in `translator.Translation`


def served_functions(
    model,
    source_tokenizer,
    target_tokenizer,
    decoding,
    n_best=1,
    read_decoding_weights=lambda: None,
    split_sentences=False,
    lexicon=None,
    reading_weights=lambda function: function,
):
    """Returns the served functions of a model: dict from signature name to `tf.function`.

    The first dimension of every input and output is the batch. Inputs of other ranks than those
    below are refused (by the tokenizers: a server does not check them). An empty or blank text has
    the translation "", with score 0. A text's answer does not depend on the other texts.

    - serving_default(text) -> translation, score, truncated, each `(B,)`.
    - n_best(text) -> translations, scores, truncated, each `(B, K)`, the best first.
    - attention(text) -> translation `(B,)`; source_pieces `(B, S)` and target_pieces `(B, T)`, the
      tokens, padded with ""; weights `(B, layers, H, T, S)` of the cross-attention, padded with 0.
      Left out if the cross-attention is linear, or if there is none.
    - score(text, target) -> score `(B,)` of the given translations, normalized as in the search.
    - encode(text) -> ids `(B, S)`: the encoder's input, including the end token, padded with 0.
    - decode(ids) -> text `(B,)` of target ids `(B, T)`.

    Args:
        model: built `TranslationModel`, such as `Transformer`.
        source_tokenizer, target_tokenizer: its tokenizers.
        decoding: `DecodingConfig`; fixed in the graphs.
        n_best: K, at most the beam size.
        read_decoding_weights: function that returns `model.decoding_weights()`, as variables for
            instance; where it returns None, they are computed in each call.
        split_sentences: whether serving_default and n_best translate a text sentence by sentence
            (`sentences.split`) and join the translations. The score of the text is the sum of the
            sentences' scores, it is truncated if one of them is, and its k-th best translation
            joins their k-th best ones.
        lexicon: `Lexicon` of the shortlists, as variables; None: a search chooses from all tokens.
            The scores of a search are then of the softmax over the shortlist, those of `score`
            always over all tokens.
        reading_weights: decorator of the functions that read the weights of the model.
    """
    source_table = tf.constant(source_tokenizer.pieces)
    shared = target_tokenizer is source_tokenizer
    target_table = source_table if shared else tf.constant(target_tokenizer.pieces)

    def read(text):
        """Returns ids `(B, S)`, and for each text whether it was cut and whether it is blank."""
        ids, truncated = source_tokenizer.encode_padded(text, decoding.max_source_length)
        return ids, truncated, tf.math.count_nonzero(ids, axis=1) <= 1  # the end token at most

    def make_search(num_hypotheses):
        def search_group(ids):
            shortlist = None if lexicon is None else lexicon.shortlist(ids)
            weights = read_decoding_weights()
            return decode(model, ids, decoding, num_hypotheses, weights, shortlist)

        @_graph(TEXT)
        @reading_weights
        def search(text):
            source_ids, truncated, blank = read(text)
            found = search_by_length_buckets(
                search_group,
                source_ids,
                num_hypotheses,
                output_limits(source_ids, decoding.max_length)[1],
            )
            target_ids = tf.where(blank[:, None, None], PAD_ID, found.ids)
            scores = tf.where(blank[:, None], 0.0, found.scores)
            truncated = (truncated[:, None] | ~found.finished) & ~blank[:, None]
            return _Found(source_ids, target_ids, scores, truncated)

        return search

    # The signatures share these graphs. The search for a single translation stops sooner.
    search = make_search(1)
    search_n_best = search if n_best == 1 else make_search(n_best)

    def translate(text, search, num_hypotheses):
        """Returns translations, scores and whether they were cut, each `(B, num_hypotheses)`."""
        found = search(text)
        num_texts, _, length = tf.unstack(tf.shape(found.target_ids))
        rows = tf.reshape(found.target_ids, [num_texts * num_hypotheses, length])
        translations = tf.reshape(target_tokenizer.decode(rows), [num_texts, num_hypotheses])
        return translations, found.scores, found.truncated

    def translate_by_sentences(text, search, num_hypotheses):
        parts, joints, is_cut = sentences.split(text, decoding.max_source_length)
        translations, scores, truncated = translate(parts.flat_values, search, num_hypotheses)
        columns = [sentences.join(translations[:, k], joints) for k in range(num_hypotheses)]
        rows = parts.value_rowids()  # every text has a part
        num_truncated = tf.math.segment_sum(tf.cast(truncated, tf.int32), rows)
        truncated = (num_truncated > 0) | is_cut[:, None]
        return tf.stack(columns, axis=1), tf.math.segment_sum(scores, rows), truncated

    translate_text = translate_by_sentences if split_sentences else translate

    @_graph(TEXT)
    def serving_default(text):
        translations, scores, truncated = translate_text(text, search, 1)
        return {
            "translation": translations[:, 0],
            "score": scores[:, 0],
            "truncated": truncated[:, 0],
        }

    @_graph(TEXT)
    def served_n_best(text):
        translations, scores, truncated = translate_text(text, search_n_best, n_best)
        return {"translations": translations, "scores": scores, "truncated": truncated}

    @_graph(TEXT)
    @reading_weights
    def attention(text):
        found = search(text)
        labels = found.target_ids[:, 0]  # (B, L)
        length = tf.reduce_max(tf.math.count_nonzero(labels, axis=1, dtype=tf.int32))
        labels = labels[:, : tf.maximum(length, 1)]  # (B, T)
        target_ids = shift_right(labels, ops)
        _, weights = model(
            {"source_ids": found.source_ids, "target_ids": target_ids},
            return_attention_weights=True,
        )
        weights = tf.stack(weights["cross"], axis=1)
        return {
            "translation": target_tokenizer.decode(labels),
            "source_pieces": _pieces(source_table, found.source_ids),
            "target_pieces": _pieces(target_table, labels),
            "weights": tf.where(labels[:, None, None, :, None] != PAD_ID, weights, 0.0),
        }

    @_graph(TEXT, TARGET)
    @reading_weights
    def served_score(text, target):
        source_ids, _, blank = read(text)
        tf.debugging.assert_equal(tf.size(text), tf.size(target), "Expected a target for each text")
        longest = model.longest_text(decoding.max_length)
        labels, _ = target_tokenizer.encode_padded(target, longest)
        logits = model({"source_ids": source_ids, "target_ids": shift_right(labels, ops)})
        normalization = decoding.length_penalty, decoding.length_normalization
        scores = score(logits, labels, *normalization)
        return {"score": tf.where(blank, 0.0, scores)}

    @_graph(TEXT)
    def encode(text):
        return {"ids": read(text)[0]}

    @_graph(IDS)
    def served_decode(ids):
        return {"text": target_tokenizer.decode(ids)}

    functions = {
        "serving_default": serving_default,
        "n_best": served_n_best,
        "attention": attention,
        "score": served_score,
        "encode": encode,
        "decode": served_decode,
    }
    if not model.gives_cross_weights:
        del functions["attention"]
    return functions


def _graph(*input_signature):
    """Decorator that makes a function one graph, for inputs of all sizes."""
    return tf.function(input_signature=input_signature, autograph=False)


def _pieces(table, ids):
    """Returns the tokens of `ids`, "" for padding, and the unknown token for ids without one."""
    known = tf.where(ids < tf.size(table), ids, UNKNOWN_ID)  # a model may have more embeddings
    return tf.where(ids == PAD_ID, "", tf.gather(table, known))
