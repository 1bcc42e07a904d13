"""Prefixes and terms in a graph: arrays made from strings, and the search that they steer.

Shapes: B batch (texts), S source length, P tokens of a prefix, R bytes, C terms, F forms of a term,
K tokens of a form, V tokens of the target.
"""

import tensorflow as tf

from keras_transformer.decoding import decode
from keras_transformer.decoding.prefixes import MAX_BYTES, SPACE
from keras_transformer.decoding.processors import config_for, options_of
from keras_transformer.export.search_by_length import search_by_length
from keras_transformer.special_ids import PAD_ID, UNKNOWN_ID
from keras_transformer.tokenizers.graph.base import valid_texts
from keras_transformer.tokenizers.patterns import WHITE_SPACE
from keras_transformer.translation.terminology import MAX_TOKENS, NOT

MAX_FORMS = 128
"""Maximum forms of the terms of a text, which bounds the memory of a search."""
TOO_MANY = (
    f"Expected terms of at most {MAX_FORMS} forms for each text. Received: more. Leave out those "
    "of terms that the text does not have."
)
LETTER = r"\pL\pN_"
"""What words are made of, within a class of a regular expression."""
FILLER = b"\xff" * MAX_BYTES
"""Behind the bytes of a prefix, so that bytes can be read at every place."""


class PrefixGraph:
    """Does in a graph what `BegunTexts` and `Prefixes` do for the texts of a translator.

    Args:
        tokenizer: `Tokenizer` of the target.
        vocabulary: `PrefixVocabulary` of its tokens.
        surfaces: strings `(V,)`, those of the tokenizer.
        max_tokens: maximum tokens of a prefix.
    Attributes:
        table: a table that a SavedModel must track: of what tokens begin with, the row of an array.
    """

    def __init__(self, tokenizer, vocabulary, surfaces, max_tokens):
        self.vocabulary = vocabulary
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        found = vocabulary.beginnings()
        rows = tf.range(1, len(found) + 1)
        keys = tf.constant(list(found))
        entries = tf.lookup.KeyValueTensorInitializer(keys, rows)
        self.table = tf.lookup.StaticHashTable(entries, 0)
        self._entries = tf.constant([(0, 0, -1), *found.values()])
        self._surfaces = surfaces

    def read(self, prefix):
        """Returns the ids of prefixes `(B,)` and their arrays, see `Prefixes.arrays`.

        Args:
            prefix: strings `(B,)`; "" for nothing.
        Returns:
            `(ids, arrays)`; ids `(B, P)`, all tokens of each prefix.
        """
        ids = _known_ids(self._tokenizer, prefix, self._max_tokens, "prefixes")
        is_token = ids != PAD_ID
        surfaces = tf.where(is_token, tf.gather(self._surfaces, ids), b"")
        starts_word = tf.strings.substr(surfaces, 0, 1) == SPACE
        places = tf.range(tf.shape(ids)[1])
        last_start = tf.reduce_max(tf.where(starts_word, places, 0), axis=1)
        from_end = tf.cumsum(tf.strings.length(surfaces), axis=1, reverse=True)
        is_rest = is_token & (places >= last_start[:, None]) & (from_end <= MAX_BYTES)
        is_rest &= ~_ends_word(prefix)[:, None]
        rests = tf.strings.reduce_join(tf.where(is_rest, surfaces, b""), axis=1)
        ends_word = _ends_word(prefix) & tf.reduce_any(is_token, axis=1)
        rests = tf.where(ends_word, SPACE, rests)
        given = tf.where(is_rest, PAD_ID, ids)
        return ids, (given, *self._tables(rests), tf.strings.length(rests)[:, None])

    def _tables(self, rests):
        """Does what `PrefixVocabulary.table` does, for all rows."""
        size = tf.strings.length(rests)
        filled = (rests + FILLER)[:, None]
        places = tf.range(MAX_BYTES)
        left = tf.maximum(size[:, None] - places, 0)  # (B, R)
        at = tf.broadcast_to(places, tf.shape(left))
        begin = self._entry(tf.strings.substr(tf.broadcast_to(filled, tf.shape(left)), at, left))
        low, high = (tf.where(left > 0, begin[..., i], 0) for i in range(2))
        at = tf.repeat(places, MAX_BYTES - 1)[None]
        sizes = tf.tile(tf.range(1, MAX_BYTES), [MAX_BYTES])[None]
        inner = self._entry(tf.strings.substr(filled, at, sizes))[..., 2]
        inner = tf.reshape(inner, [-1, MAX_BYTES, MAX_BYTES - 1])
        inner = tf.where(tf.range(1, MAX_BYTES) < left[..., None], inner, -1)
        leads_to_end = [tf.zeros_like(size, tf.bool)] * (2 * MAX_BYTES)  # after each place
        leads_to_end[MAX_BYTES] = size == MAX_BYTES
        columns = []
        for place in reversed(range(MAX_BYTES)):
            after = tf.stack(leads_to_end[place + 1 : place + MAX_BYTES], axis=1)  # (B, R - 1)
            column = tf.where(after, inner[:, place], -1)
            goes_on = tf.reduce_any(column >= 0, axis=1) | (low[:, place] < high[:, place])
            leads_to_end[place] = goes_on | (size == place)
            columns.insert(0, column)
        return low, high, tf.stack(columns, axis=1)

    def _entry(self, parts):
        """Returns `(..., 3)`: ranks from and to below which tokens begin so, and a token or -1."""
        return tf.gather(self._entries, self.table.lookup(parts))

    def translations(self, prefix, ids, given, outputs):
        """Returns the texts of outputs `(B, L)` behind prefixes, these letter for letter: `(B,)`.

        Args:
            prefix: strings `(B,)`.
            ids: their ids `(B, P)`.
            given: those that the search was given, the first of the arrays.
            outputs: ids `(B, L)` that continue these.
        """
        texts = self._tokenizer.decode(tf.concat([given, outputs], axis=1))
        shown = self._tokenizer.decode(ids)
        shown += tf.where(_ends_word(prefix) & (shown != ""), SPACE, b"")
        size = tf.strings.length(shown)
        is_whole = tf.strings.substr(texts, tf.zeros_like(size), size) == shown
        begin = tf.minimum(size, tf.strings.length(texts))
        rests = tf.strings.substr(texts, begin, tf.strings.length(texts) - begin)
        return valid_texts(prefix) + tf.where(is_whole, rests, b"")


class TermGraph:
    """Does in a graph what `TermRows` does, from the forms themselves.

    Args:
        tokenizer: `Tokenizer` of the target.
        vocabulary: `TermVocabulary` of its tokens.
    """

    def __init__(self, tokenizer, vocabulary):
        self.vocabulary = vocabulary
        self._tokenizer = tokenizer

    def read(self, terms, prefix):
        """Returns which texts have terms, and the arrays of these, see `TermRows.arrays`.

        Args:
            terms: strings `(B, C)`: the forms of each term between tabs, "" for no term. A form
                that begins with `!` is forbidden.
            prefix: strings `(B,)`; a term of which a form stands there is left out.
        Returns:
            `(has_terms, arrays)`; has_terms: bool `(B,)`.
        """
        none = tf.fill([tf.shape(terms)[0], 1], "")  # so that there is at least one
        forms, is_forbidden, shape = _forms(tf.concat([terms, none], axis=1))
        ids = _known_ids(self._tokenizer, forms, MAX_TOKENS, "terms")
        sizes = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        ids = tf.reshape(ids, tf.concat([shape, [-1]], axis=0))  # (B, C, F, K)
        is_forbidden, sizes = (tf.reshape(x, shape) for x in (is_forbidden, sizes))
        stands = tf.reshape(_has(tf.repeat(_words(prefix), shape[1] * shape[2]), forms), shape)
        is_met = tf.reduce_any(stands & ~is_forbidden & (sizes > 0), axis=2, keepdims=True)
        wanted = tf.where(is_forbidden | is_met, 0, sizes)
        forbidden = tf.where(is_forbidden, sizes, 0)
        flat = tf.reshape(forbidden, [shape[0], shape[1] * shape[2]])
        flat_ids = tf.reshape(ids, [shape[0], shape[1] * shape[2], tf.shape(ids)[3]])
        has_terms = tf.reduce_any(wanted + forbidden > 0, axis=[1, 2])
        return has_terms, (ids, wanted, flat_ids, flat)

    def met(self, terms, translations):
        """Returns which terms translations `(B,)` have, without a forbidden form: bool `(B, C)`.

        Args:
            terms: as of `read`; "" is met.
        """
        forms, is_forbidden, shape = _forms(terms)
        texts = tf.repeat(_words(translations), shape[1] * shape[2])
        is_wanted = ~is_forbidden & (forms != "")
        stands, is_wanted = (tf.reshape(x, shape) for x in (_has(texts, forms), is_wanted))
        has_wanted = tf.reduce_any(stands & is_wanted, axis=2) | ~tf.reduce_any(is_wanted, axis=2)
        return has_wanted & ~tf.reduce_any(stands & ~is_wanted, axis=2)


def _forms(terms):
    """Returns the forms of terms `(B, C)`, whether each is forbidden, and their shape `(B, C, F)`.

    Both are flat, with "" where a term has fewer forms than others.
    """
    num_rows, num_terms = tf.unstack(tf.shape(terms))
    forms = tf.strings.split(tf.reshape(terms, [-1]), "\t").to_tensor("")  # (B C, F)
    shape = tf.stack([num_rows, num_terms, tf.shape(forms)[1]])
    forms = _checked(forms, tf.reduce_prod(shape[1:]) <= MAX_FORMS + shape[2], TOO_MANY)
    forms = _words(tf.reshape(forms, [-1]))
    is_forbidden = tf.strings.substr(forms, 0, 1) == NOT
    return _words(tf.strings.regex_replace(forms, f"^{NOT}", "")), is_forbidden, shape


def _known_ids(tokenizer, texts, max_tokens, name):
    """Returns ids `(B, P)`, padded, without end token; an error for texts that it cannot write."""
    ids, truncated = tokenizer.encode_truncated(texts, max_tokens)
    ids = ids[:, :-1].to_tensor(PAD_ID)
    is_wrong = truncated | tf.reduce_any(ids == UNKNOWN_ID, axis=1)
    first = tf.strings.reduce_join(tf.boolean_mask(valid_texts(texts), is_wrong)[:1])
    message = tf.strings.join(
        [
            f"Expected {name} of at most {max_tokens} tokens, of characters that the tokenizer of "
            "the target knows. Received: ",
            tf.strings.substr(first, 0, 200, "UTF8_CHAR"),
            ". Shorten it, or leave the unknown characters out.",
        ]
    )
    return _checked(ids, ~tf.reduce_any(is_wrong), message)


def _checked(tensor, condition, message):
    """Returns the tensor; an error that says `message` unless the condition holds."""
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(tensor)


def _ends_word(prefix):
    return tf.strings.regex_full_match(valid_texts(prefix), f"(?s).*{WHITE_SPACE}")


def _words(texts):
    """Returns texts with one space between words, and none around them."""
    words = tf.strings.regex_replace(valid_texts(texts), f"{WHITE_SPACE}+", " ")
    return tf.strings.strip(words)


def _has(texts, forms):
    """Returns whether each form stands in its text as whole words: bool `(B,)`."""
    quoted = tf.strings.regex_replace(forms, r"([!-/:-@\[-`{-~])", r"\\\1")
    patterns = rf"(?s)(?:|.*[^{LETTER}])" + quoted + rf"(?:|[^{LETTER}].*)"
    places = tf.where((texts != "") & (forms != ""))[:, 0]
    found = tf.map_fn(
        lambda i: tf.raw_ops.RegexFullMatch(input=texts[i], pattern=patterns[i]),
        places,
        fn_output_signature=tf.bool,
    )
    return tf.scatter_nd(places[:, None], found, tf.shape(texts, tf.int64))


class ConstrainedSearch:
    """Searches in a graph as `Translator.translate` does with prefixes and terms.

    Args:
        translator: `Translator`.
        surfaces: strings `(V,)`, those of its tokenizer of the target.
    Attributes:
        table: the lookup table of `PrefixGraph`.
    """

    def __init__(self, translator, surfaces):
        self._model, self._decoding = translator.model, translator.decoding
        self._processors = translator.processors
        tokenizer = translator.target_tokenizer
        longest = self._model.longest_text(self._decoding.max_length)
        vocabulary = translator.prefix_vocabulary
        self._prefixes = PrefixGraph(tokenizer, vocabulary, surfaces, longest)
        self._terms = TermGraph(tokenizer, translator.term_vocabulary)
        self.table = self._prefixes.table

    def search(self, source_ids, max_length, prefix, terms, read_decoding_weights):
        """Returns translations, scores and whether they have ended, each `(B,)`, and terms met.

        Args:
            source_ids: `(B, S)` int32, each ended by the end token, padded with 0.
            max_length: the largest limit of an output, an int scalar.
            prefix, terms: strings `(B,)` and `(B, C)`, see `Signatures`.
            read_decoding_weights: see `Signatures`.
        Returns:
            `(translations, scores, finished, terms_met)`; terms_met: bool `(B, C)`.
        """
        prefix_ids, of_prefixes = self._prefixes.read(prefix)
        has_terms, of_terms = self._terms.read(terms, prefix)

        def found(is_searched, vocabularies, arrays):
            config = config_for(self._decoding, vocabularies)

            def search_group(ids, rows):
                own = [tf.gather(array, rows) for array in arrays]
                options = options_of(vocabularies, own, self._processors)
                weights = read_decoding_weights()
                return decode(self._model, ids, config, weights=weights, **options)

            return search_by_length(search_group, source_ids, 1, max_length, is_searched)

        steering = self._prefixes.vocabulary, self._terms.vocabulary
        without = found(~has_terms, steering[:1], of_prefixes)
        with_terms = found(has_terms, steering, (*of_prefixes, *of_terms))
        ids = tf.where(has_terms[:, None], with_terms.ids[:, 0], without.ids[:, 0])
        scores = tf.where(has_terms, with_terms.scores[:, 0], without.scores[:, 0])
        finished = tf.where(has_terms, with_terms.finished[:, 0], without.finished[:, 0])
        translations = self._prefixes.translations(prefix, prefix_ids, of_prefixes[0], ids)
        return translations, scores, finished, self._terms.met(terms, translations)
