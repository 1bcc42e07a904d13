"""The search of an export for translations with given prefixes and terms.

Shapes: B batch (texts), S source length, C terms, V tokens of the target.
"""

import tensorflow as tf

from keras_transformer.decoding import decode
from keras_transformer.decoding.steering import config_for, options_of
from keras_transformer.export.constraints import PrefixGraph, TermGraph
from keras_transformer.export.search_by_length import search_by_length


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
