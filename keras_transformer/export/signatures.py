"""The functions of an export, from strings to strings. Each is one TensorFlow graph.

Shapes: B batch (texts), K hypotheses of each text, L maximum output length, T target length, S
source length, H heads; B' and S' are those of a group of texts.
"""

from typing import NamedTuple

import tensorflow as tf
from keras import ops

from keras_transformer.decoding import decode, score
from keras_transformer.decoding.hypotheses import IMPOSSIBLE, SearchResult
from keras_transformer.export import sentences
from keras_transformer.models.translation_model import output_limits
from keras_transformer.special_ids import PAD_ID, UNKNOWN_ID, shift_right

TEXT = tf.TensorSpec([None], tf.string, "text")
TARGET = tf.TensorSpec([None], tf.string, "target")
IDS = tf.TensorSpec([None, None], tf.int32, "ids")

MAX_PADDING = 3
"""Maximum ratio of the longest to the shortest sentence in a group. With a smaller ratio, groups
of ordinary text are too small to be fast."""

MAX_TOGETHER = 2**14
"""Maximum source ids in a group, including padding, which limits the memory of a search."""


MAX_TEXTS = 512
"""Maximum texts, or sentences of texts, that are tokenized and searched at once."""


class _Found(NamedTuple):
    """The result of a search for a batch of texts; one that is copied has no ids and score 0."""

    source_ids: tf.Tensor  # (B, S) int32
    is_copied: tf.Tensor  # (B,) bool
    copies: tf.Tensor  # (B,) strings
    target_ids: tf.Tensor  # (B, K, L) int32, ended by the end token, then padding
    scores: tf.Tensor  # (B, K) float32
    truncated: tf.Tensor  # (B, K) bool, as in `Translation`


class Signatures:
    """The signatures of a translator's export.

    The first dimension of every input and output is the batch. Inputs of other ranks than those
    below are refused (by the tokenizers: a server does not check them). A text that is blank, or
    of which the tokenizer knows nothing, is answered by a copy (`Tokenizer.copies`), with score 0.
    A text's answer does not depend on the other texts.

    - serving_default(text) -> translation, score, truncated, each `(B,)`.
    - n_best(text) -> translations, scores, truncated, each `(B, K)`, the best first. Those of a
      text differ: where the search has found fewer, the rest are "" with the score `IMPOSSIBLE`.
    - attention(text) -> translation `(B,)`; source_pieces `(B, S)` and target_pieces `(B, T)`, the
      tokens, padded with ""; weights `(B, layers, H, T, S)` of the cross-attention, padded with 0.
      Left out if the cross-attention is linear, or if there is none.
    - score(text, target) -> score `(B,)` of the given translations, normalized as in the search.
    - encode(text) -> ids `(B, S)`: the encoder's input, including the end token, padded with 0.
    - decode(ids) -> text `(B,)` of target ids `(B, T)`.

    Args:
        translator: `Translator` of a built model. Its search is fixed in the graphs.
        n_best: K, at most the beam size.
        split_sentences: whether serving_default and n_best translate a text sentence by sentence
            (`sentences.split`) and join the translations. The score of the text is the sum of the
            sentences' scores, it is truncated if one of them is, and its k-th best translation
            joins their k-th best ones, or the last that a sentence has.
        lexicon: `Lexicon` of the shortlists, as variables; None: a search chooses from all tokens.
            The scores of a search are then of the softmax over the shortlist, those of `score`
            always over all tokens.
        read_decoding_weights: function that returns `model.decoding_weights()`, as variables for
            instance; where it returns None, they are computed in each call.
        reading_weights: decorator of the functions that read the weights of the model.
    """

    def __init__(
        self,
        translator,
        n_best=1,
        split_sentences=False,
        lexicon=None,
        read_decoding_weights=lambda: None,
        reading_weights=lambda function: function,
    ):
        self._model, self._decoding = translator.model, translator.decoding
        self._source, self._target = translator.tokenizer, translator.target_tokenizer
        self._processors = translator.processors
        self._n_best, self._split_sentences = n_best, split_sentences
        self._lexicon, self._read_decoding_weights = lexicon, read_decoding_weights
        self._reading_weights = reading_weights
        # The signatures share these constants, and the graphs of the search. The search for a
        # single translation stops sooner.
        self._source_pieces = self._target_pieces = tf.constant(self._source.pieces)
        if self._target is not self._source:
            self._target_pieces = tf.constant(self._target.pieces)
        # several hypotheses may have the same text
        num_hypotheses = {1, self._decoding.beam_size if n_best > 1 else 1}
        self._searches = {k: self._search_graph(k) for k in num_hypotheses}

    def functions(self):
        """Returns a dict from the name of each signature to its `tf.function`."""
        reading = self._reading_weights
        functions = {
            "serving_default": _graph(self._serving_default, TEXT),
            "n_best": _graph(self._served_n_best, TEXT),
            "attention": _graph(reading(self._attention), TEXT),
            "score": _graph(reading(self._score), TEXT, TARGET),
            "encode": _graph(lambda text: {"ids": self._read(text)[0]}, TEXT),
            "decode": _graph(lambda ids: {"text": self._target.decode(ids)}, IDS),
        }
        if not self._model.decoder.gives_cross_weights:
            del functions["attention"]
        return functions

    def _serving_default(self, text):
        translations, scores, truncated = self._translate(text, 1)
        columns = translations[:, 0], scores[:, 0], truncated[:, 0]
        return dict(zip(("translation", "score", "truncated"), columns, strict=True))

    def _served_n_best(self, text):
        columns, is_there = distinct(self._translate(text, self._n_best), self._n_best)
        fillers = "", IMPOSSIBLE, False
        columns = [tf.where(is_there, *each) for each in zip(columns, fillers, strict=True)]
        return dict(zip(("translations", "scores", "truncated"), columns, strict=True))

    def _attention(self, text):
        found = self._searches[1](text)
        labels = found.target_ids[:, 0]  # (B, L)
        length = tf.reduce_max(tf.math.count_nonzero(labels, axis=1, dtype=tf.int32))
        labels = labels[:, : tf.maximum(length, 1)]  # (B, T)
        inputs = {"source_ids": found.source_ids, "target_ids": shift_right(labels, ops)}
        _, weights = self._model(inputs, return_attention_weights=True)
        weights = tf.stack(weights["cross"], axis=1)
        return {
            "translation": tf.where(found.is_copied, found.copies, self._target.decode(labels)),
            "source_pieces": _pieces(self._source_pieces, found.source_ids),
            "target_pieces": _pieces(self._target_pieces, labels),
            "weights": tf.where(labels[:, None, None, :, None] != PAD_ID, weights, 0.0),
        }

    def _score(self, text, target):
        source_ids, _ = self._read(text)
        is_copied, _ = self._source.copies(text, source_ids)
        tf.debugging.assert_equal(tf.size(text), tf.size(target), "Expected a target for each text")
        longest = self._model.longest_text(self._decoding.max_length)
        labels, _ = self._target.encode_padded(target, longest)
        logits = self._model({"source_ids": source_ids, "target_ids": shift_right(labels, ops)})
        normalization = self._decoding.length_penalty, self._decoding.length_normalization
        return {"score": tf.where(is_copied, 0.0, score(logits, labels, *normalization))}

    def _read(self, text):
        """Returns ids `(B, S)`, and for each text whether it was cut."""
        return self._source.encode_padded(text, self._decoding.max_source_length)

    def _search_graph(self, num_hypotheses):
        """Returns the `tf.function` of a batch of texts that returns `_Found`."""

        def search_group(ids):
            shortlist = None if self._lexicon is None else self._lexicon.shortlist(ids)
            weights = self._read_decoding_weights()
            steering = weights, shortlist, self._processors
            return decode(self._model, ids, self._decoding, num_hypotheses, *steering)

        def search(text):
            source_ids, truncated = self._read(text)
            is_copied, copies = self._source.copies(text, source_ids)
            max_length = output_limits(source_ids, self._decoding.max_length)[1]
            found = search_by_length(search_group, source_ids, num_hypotheses, max_length)
            target_ids = tf.where(is_copied[:, None, None], PAD_ID, found.ids)
            scores = tf.where(is_copied[:, None], 0.0, found.scores)
            truncated = truncated[:, None] | ~(found.finished | is_copied[:, None])
            return _Found(source_ids, is_copied, copies, target_ids, scores, truncated)

        return _graph(self._reading_weights(search), TEXT)

    def _translate(self, text, n_best):
        """Returns translations, scores and whether they were cut, each `(B, n_best)`."""
        if not self._split_sentences:
            return self._translate_whole(text, n_best)
        parts, joints, is_cut = sentences.split(text, self._decoding.max_source_length)
        translations, scores, truncated = self._translate_whole(parts.flat_values, n_best)
        columns = [sentences.join(translations[:, k], joints) for k in range(n_best)]
        rows = parts.value_rowids()  # every text has a part
        num_truncated = tf.math.segment_sum(tf.cast(truncated, tf.int32), rows)
        truncated = (num_truncated > 0) | is_cut[:, None]
        return tf.stack(columns, axis=1), tf.math.segment_sum(scores, rows), truncated

    def _translate_whole(self, text, n_best):
        """Does what `_translate` does, without splitting, for a few texts at a time."""
        search = self._searches[self._decoding.beam_size if n_best > 1 else 1]
        text = tf.ensure_shape(text, [None])  # a server does not check it

        def translate_some(begin, *columns):
            found = search(text[begin : begin + MAX_TEXTS])
            num_texts, num_hypotheses, length = tf.unstack(tf.shape(found.target_ids))
            rows = tf.reshape(found.target_ids, [num_texts * num_hypotheses, length])
            translations = tf.reshape(self._target.decode(rows), [num_texts, num_hypotheses])
            translations = tf.where(found.is_copied[:, None], found.copies[:, None], translations)
            some, _ = distinct((translations, found.scores, found.truncated), n_best)
            both = zip(columns, some, strict=True)
            return begin + MAX_TEXTS, *(tf.concat(each, axis=0) for each in both)

        columns = [tf.zeros([0, n_best], dtype) for dtype in (tf.string, tf.float32, tf.bool)]
        _, *columns = tf.while_loop(
            lambda begin, *_: begin < tf.size(text),
            translate_some,
            (0, *columns),
            shape_invariants=(tf.TensorShape([]), *[tf.TensorShape([None, n_best])] * 3),
            parallel_iterations=1,
        )
        return columns


def distinct(columns, n_best):
    """Returns the columns with the first hypothesis of each text, and where there are any.

    Args:
        columns: tensors `(B, K)`: texts, scores and others.
        n_best: number of columns to return. Where there are fewer, the last is repeated.
    """
    texts, scores, *_ = columns
    places = tf.range(tf.shape(texts)[1])
    is_same = tf.cast(texts[:, :, None] == texts[:, None], tf.int32)  # (B, K, K)
    is_first = tf.argmax(is_same, axis=2, output_type=tf.int32) == places
    is_first &= (scores > IMPOSSIBLE / 2) | (places == 0)
    order = tf.argsort(tf.cast(~is_first, tf.int32), axis=1, stable=True)
    num_first = tf.math.count_nonzero(is_first, axis=1, keepdims=True, dtype=tf.int32)
    order = tf.gather(order, tf.minimum(tf.range(n_best), num_first - 1), batch_dims=1)
    columns = tuple(tf.gather(column, order, batch_dims=1) for column in columns)
    return columns, tf.range(n_best) < num_first


def search_by_length(search, source_ids, num_hypotheses, max_length):
    """Returns `search(source_ids)`, computed for groups of like length, the longest first.

    In the encoder and in every attention to the source, padding costs as much as tokens do.

    Args:
        search: function of ids `(B', S')` that returns a `SearchResult` with K hypotheses of at
            most L tokens.
        source_ids: `(B, S)` int32, each ended by the end token, padded with 0.
        num_hypotheses: K.
        max_length: L, an int scalar.
    """
    num_sentences = tf.shape(source_ids)[0]
    lengths = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)

    def any_left(rows, *_):
        return tf.size(rows) > 0

    def search_longest(rows, *results):
        longest = tf.reduce_max(tf.gather(lengths, rows))
        in_group = MAX_PADDING * tf.gather(lengths, rows) >= longest
        in_group &= tf.cumsum(tf.cast(in_group, tf.int32)) <= tf.maximum(1, MAX_TOGETHER // longest)
        group = tf.boolean_mask(rows, in_group)
        found = search(tf.gather(source_ids, group)[:, :longest])
        missing = max_length - tf.shape(found.ids)[2]
        found = found._replace(ids=tf.pad(found.ids, [[0, 0], [0, 0], [0, missing]]))
        results = [
            tf.tensor_scatter_nd_update(result, group[:, None], group_result)
            for result, group_result in zip(results, found, strict=True)
        ]
        return (tf.boolean_mask(rows, ~in_group), *results)

    each = [num_sentences, num_hypotheses]
    results = SearchResult(
        ids=tf.zeros([*each, max_length], tf.int32),
        scores=tf.zeros(each),
        lengths=tf.zeros(each, tf.int32),
        finished=tf.zeros(each, tf.bool),
    )
    _, *results = tf.while_loop(
        any_left,
        search_longest,
        (tf.range(num_sentences), *results),
        shape_invariants=(tf.TensorShape([None]), *(result.shape for result in results)),
    )
    return SearchResult(*results)


def _graph(function, *input_signature):
    """Returns a function as one graph, for inputs of all sizes."""
    return tf.function(function, input_signature=input_signature, autograph=False)


def _pieces(table, ids):
    """Returns the tokens of `ids`, "" for padding, and the unknown token for ids without one."""
    known = tf.where(ids < tf.size(table), ids, UNKNOWN_ID)  # a model may have more embeddings
    return tf.where(ids == PAD_ID, "", tf.gather(table, known))
