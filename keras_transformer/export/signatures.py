"""The functions of an export, from strings to strings. Each is one TensorFlow graph.

Shapes: B batch (texts), K hypotheses of each text, L maximum output length, T target length, S
source length, H heads; B' and S' are those of a group of texts.
"""

import functools
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding import decode, score
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.export import sentences
from keras_transformer.export.constraints import ConstrainedSearch
from keras_transformer.export.search_by_length import search_by_length
from keras_transformer.export.words import explain
from keras_transformer.models.translation_model import output_limits
from keras_transformer.special_ids import PAD_ID, UNKNOWN_ID
from keras_transformer.translation.explanation import alignment_of, force, token_log_probs

TEXT, TARGET, PREFIX = (
    tf.TensorSpec([None], tf.string, name) for name in ("text", "target", "prefix")
)
TERMS = tf.TensorSpec([None, None], tf.string, "terms")
IDS = tf.TensorSpec([None, None], tf.int32, "ids")

MAX_TEXTS = 512
"""Maximum texts that are tokenized and searched at once."""
MAX_SENTENCES = 128
"""The same for sentences of texts, as one request may have thousands: a quarter of the memory, in
7 to 10 % more time."""
MAX_TEXTS_WITH_TERMS = 16
"""The same if they have terms, each step of which compares tokens of all hypotheses and forms."""


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
    below are refused. A text that is blank, or of which the tokenizer knows nothing, is answered by
    a copy (`Tokenizer.copies`), with score 0. A text's answer does not depend on the other texts.

    - serving_default(text) -> translation, score, truncated, each `(B,)`.
    - n_best(text) -> translations, scores, truncated, each `(B, K)`, the best first. Those of a
      text differ: where the search has found fewer, the rest are "" with the score `IMPOSSIBLE`.
    - constrained(text, prefix, terms) -> translation, score, truncated, each `(B,)`: translations
      that begin with `prefix` `(B,)` and have the terms `(B, C)`: in each cell a form, or several
      between tabs, of which one is enough; `!` before a form forbids it, "" is no term. terms_met
      `(B, C)`: False where a translation lacks a term, or has a form that is forbidden. As
      `Translator.translate` with prefixes and terms; the text is not split into sentences. A prefix
      or form that the tokenizer cannot write is refused, and so are more than `MAX_FORMS` forms.
    - explain(text, target) -> source_words `(B, V)`, and of the given translations words `(B, W)`,
      both padded with ""; word_scores `(B, W)`; alignment `(B, W)`: the number of a word of the
      source, -1 for none; attention `(B, W, V)`, padded with 0; token_alignment `(B, T)`: the same
      for tokens as alignment for words, -1 at the end. As `Translator.explain`. Of the text:
      truncated `(B,)`, whether it was cut, and num_unknown `(B,)`, how many of its tokens are
      characters that the tokenizer does not know.
    - attention(text) -> translation `(B,)`; source_pieces `(B, S)` and target_pieces `(B, T)`, the
      tokens, padded with ""; weights `(B, layers, H, T, S)` of the cross-attention, padded with 0.
      Left out if the cross-attention is linear, or if there is none.
    - forced_attention(text, target) -> source_pieces, target_pieces and weights, as attention, of
      the given translations.
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
    Attributes:
        tables: lookup tables that the functions read, for a SavedModel to track.
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
        self._alignment_head = translator.alignment_head
        self._n_best, self._split_sentences = n_best, split_sentences
        self._lexicon, self._read_decoding_weights = lexicon, read_decoding_weights
        self._reading_weights = reading_weights
        # The signatures share these constants, and the graphs of the model and the search. The
        # search for a single translation stops sooner.
        self._force = _graph(reading_weights(functools.partial(force, self._model)), IDS, IDS)
        self._source_pieces = self._target_pieces = tf.constant(self._source.pieces)
        self._source_surfaces = self._target_surfaces = tf.constant(self._source.surfaces)
        if self._target is not self._source:
            self._target_pieces = tf.constant(self._target.pieces)
            self._target_surfaces = tf.constant(self._target.surfaces)
        self._constraints = ConstrainedSearch(translator, self._target_surfaces)
        self.tables = [self._constraints.table]
        # several hypotheses may have the same text
        num_hypotheses = {1, self._decoding.beam_size if n_best > 1 else 1}
        self._searches = {k: self._search_graph(k) for k in num_hypotheses}

    def functions(self):
        """Returns a dict from the name of each signature to its `tf.function`."""
        reading = self._reading_weights
        functions = {
            "serving_default": _graph(self._serving_default, TEXT),
            "n_best": _graph(self._served_n_best, TEXT),
            "constrained": _graph(reading(self._constrained), TEXT, PREFIX, TERMS),
            "attention": _graph(self._attention, TEXT),
            "forced_attention": _graph(self._forced_attention, TEXT, TARGET),
            "score": _graph(self._score, TEXT, TARGET),
            "explain": _graph(self._explain, TEXT, TARGET),
            "encode": _graph(lambda text: {"ids": self._read(text)[0]}, TEXT),
            "decode": _graph(lambda ids: {"text": self._target.decode(ids)}, IDS),
        }
        if not self._model.gives_cross_weights:
            del functions["attention"], functions["forced_attention"]
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
        translation = tf.where(found.is_copied, found.copies, self._target.decode(labels))
        return {"translation": translation, **self._pieces_and_weights(found.source_ids, labels)}

    def _forced_attention(self, text, target):
        source_ids, _, is_copied, labels = self._read_both(text, target)
        return self._pieces_and_weights(source_ids, tf.where(is_copied[:, None], PAD_ID, labels))

    def _pieces_and_weights(self, source_ids, labels):
        weights = tf.stack(self._force(source_ids, labels)[1], axis=1)
        return {
            "source_pieces": _pieces(self._source_pieces, source_ids),
            "target_pieces": _pieces(self._target_pieces, labels),
            "weights": tf.where(labels[:, None, None, :, None] != PAD_ID, weights, 0.0),
        }

    def _constrained(self, text, prefix, terms):
        text = _with_rows(_with_rows(text, "prefix", prefix), "row of terms", terms)
        at_once = tf.where(tf.reduce_any(terms != ""), MAX_TEXTS_WITH_TERMS, MAX_TEXTS)
        columns = *_no_rows(), tf.zeros([0, tf.shape(terms)[1]], tf.bool)
        translate = self._translate_constrained
        columns = _some_at_a_time(translate, at_once, columns, text, prefix, terms)
        return dict(zip(("translation", "score", "truncated", "terms_met"), columns, strict=True))

    def _translate_constrained(self, text, prefix, terms):
        """Returns four columns; texts without prefix and terms are translated as always."""
        is_plain = (prefix == "") & ~tf.reduce_any(terms != "", axis=1)
        plain = self._translate_whole(tf.boolean_mask(text, is_plain), 1, MAX_TEXTS)
        plain = [column[:, 0] for column in plain]
        plain.append(tf.boolean_mask(terms, is_plain) == "")
        others = [tf.boolean_mask(each, ~is_plain) for each in (text, prefix, terms)]
        places = [tf.where(mask)[:, 0] for mask in (is_plain, ~is_plain)]
        places = [tf.cast(each, tf.int32) for each in places]
        pairs = zip(plain, self._search_constrained(*others), strict=True)
        return [tf.dynamic_stitch(places, pair) for pair in pairs]

    def _search_constrained(self, text, prefix, terms):
        source_ids, truncated = self._read(text)
        is_copied, copies = self._source.copies(text, source_ids)
        max_length = output_limits(source_ids, self._decoding.max_length)[1]
        read_weights = self._read_decoding_weights
        found = self._constraints.search(source_ids, max_length, prefix, terms, read_weights)
        translations, scores, finished, terms_met = found
        translations = tf.where(is_copied, copies, translations)
        scores, truncated = tf.where(is_copied, 0.0, scores), truncated | ~(finished | is_copied)
        return translations, scores, truncated, terms_met

    def _explain(self, text, target):
        source_ids, truncated, is_copied, labels = self._read_both(text, target)
        logits, weights = self._force(source_ids, labels)
        log_probs = token_log_probs(logits, labels)
        labels = tf.where(is_copied[:, None], PAD_ID, labels)
        sources = tf.where(is_copied[:, None], PAD_ID, source_ids)
        looks = alignment_of(weights, self._alignment_head) if weights else None
        sides = (self._source_surfaces, sources), (self._target_surfaces, labels)
        num_unknown = tf.math.count_nonzero(
            tf.reduce_any(source_ids[..., None] == self._source.unknown_ids, axis=2),
            axis=1,
            dtype=tf.int32,
        )
        of_text = {"truncated": truncated, "num_unknown": num_unknown}
        return {**explain(*sides, log_probs, looks), **of_text}

    def _read_both(self, text, target):
        """Returns ids `(B, S)`, whether texts are cut, and copied, and ids `(B, T)` of targets."""
        text = _with_rows(text, "target", target)
        source_ids, truncated = self._read(text)
        is_copied, _ = self._source.copies(text, source_ids)
        longest = self._model.longest_text(self._decoding.max_length)
        labels, _ = self._target.encode_padded(target, longest)
        return source_ids, truncated, is_copied, labels

    def _score(self, text, target):
        source_ids, _, is_copied, labels = self._read_both(text, target)
        logits, _ = self._force(source_ids, labels)
        normalization = self._decoding.length_penalty, self._decoding.length_normalization
        return {"score": tf.where(is_copied, 0.0, score(logits, labels, *normalization))}

    def _read(self, text):
        """Returns ids `(B, S)`, and for each text whether it was cut."""
        return self._source.encode_padded(text, self._decoding.max_source_length)

    def _search_graph(self, num_hypotheses):
        """Returns the `tf.function` of a batch of texts that returns `_Found`."""

        def search_group(ids, _):
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
            return self._translate_whole(text, n_best, MAX_TEXTS)
        parts, joints, is_cut = sentences.split(text, self._decoding.max_source_length)
        translations, scores, truncated = self._translate_whole(
            parts.flat_values, n_best, MAX_SENTENCES
        )
        columns = [sentences.join(translations[:, k], joints) for k in range(n_best)]
        rows = parts.value_rowids()  # every text has a part
        num_truncated = tf.math.segment_sum(tf.cast(truncated, tf.int32), rows)
        truncated = (num_truncated > 0) | is_cut[:, None]
        return tf.stack(columns, axis=1), tf.math.segment_sum(scores, rows), truncated

    def _translate_whole(self, text, n_best, at_once):
        """Does what `_translate` does, without splitting, for some texts at a time."""
        search = self._searches[self._decoding.beam_size if n_best > 1 else 1]

        def translate(text):
            found = search(text)
            num_texts, num_hypotheses, length = tf.unstack(tf.shape(found.target_ids))
            rows = tf.reshape(found.target_ids, [num_texts * num_hypotheses, length])
            translations = tf.reshape(self._target.decode(rows), [num_texts, num_hypotheses])
            translations = tf.where(found.is_copied[:, None], found.copies[:, None], translations)
            some, _ = distinct((translations, found.scores, found.truncated), n_best)
            return some

        return _some_at_a_time(translate, at_once, _no_rows(n_best), text)


def _no_rows(*shape):
    """Returns columns without rows for translations, scores and whether they were cut.

    Args:
        shape: of a row.
    """
    return [tf.zeros([0, *shape], dtype) for dtype in (tf.string, tf.float32, tf.bool)]


def _some_at_a_time(translate, at_once, columns, text, *others):
    """Returns the columns of all texts, translated some at a time.

    Args:
        translate: function of some rows of `text` and `others`; returns their columns.
        at_once: an int scalar, how many rows.
        columns: tensors without rows, to which those of the texts are appended.
    """

    def translate_some(begin, *columns):
        some = translate(*(each[begin : begin + at_once] for each in (text, *others)))
        both = zip(columns, some, strict=True)
        return begin + at_once, *(tf.concat(each, axis=0) for each in both)

    _, *columns = tf.while_loop(
        lambda begin, *_: begin < tf.size(text),
        translate_some,
        (0, *columns),
        shape_invariants=(
            tf.TensorShape([]),
            *(tf.TensorShape([None, *column.shape[1:]]) for column in columns),
        ),
        parallel_iterations=1,
    )
    return columns


def _with_rows(text, name, rows):
    """Returns `text`; an error unless there is one of the rows for each."""
    expected = f"Expected a {name} for each text"
    check = tf.debugging.assert_equal(tf.size(text), tf.shape(rows)[0], expected)
    with tf.control_dependencies([check]):
        return tf.identity(text)


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


def _graph(function, *input_signature):
    """Returns a function as one graph, for inputs of all sizes; other ranks are refused."""

    @functools.wraps(function)
    def checked(*inputs):
        # A server does not check them. No other operation may read an input before this one.
        specs = zip(inputs, input_signature, strict=True)
        return function(*(tf.ensure_shape(each, spec.shape) for each, spec in specs))

    return tf.function(checked, input_signature=input_signature, autograph=False)


def _pieces(table, ids):
    """Returns the tokens of `ids`, "" for padding, and the unknown token for ids without one."""
    known = tf.where(ids < tf.size(table), ids, UNKNOWN_ID)  # a model may have more embeddings
    return tf.where(ids == PAD_ID, "", tf.gather(table, known))
