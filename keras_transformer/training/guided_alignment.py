"""What one head of the attention to the source is trained to align (Garg et al., 2019).

https://arxiv.org/abs/1909.02074. `data.alignments` makes the labels, and `TokenCrossEntropy` the
loss of them.
"""

import numpy as np

from keras_transformer.data.alignments import begins_word, word_numbers
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.errors import InputError
from keras_transformer.translation.lexicon import align

LEXICON = "lexicon"
"""The setting that asks for the links of `translation.lexicon.align`, not for those of a file."""


def links_of_batches(batches, corpus, tokenizers, links, write):
    """Returns the links of the words of each pair in some batches, as `RaggedIds` of `(L, 2)`.

    Args:
        batches: `TranslationBatches`.
        corpus: the `ParallelCorpus` that they were made of.
        tokenizers: `(source, target)`.
        links: those of the pairs of the corpus, from `read_links`; None: those of a lexicon.
        write: called with each line of the report.
    Raises:
        InputError: none of the pairs has the words that the links are of.
    """
    rows = [list(side.texts()) for side in batches.rows]
    words = [
        [word_numbers(begins, ids[None])[0] for ids in side]
        for begins, side in zip(map(begins_word, tokenizers), rows, strict=True)
    ]
    if links is None:
        found = [
            np.stack([source[places[:, 0]], target[places[:, 1]]], axis=1)
            for places, source, target in zip(align(*rows), *words, strict=True)
        ]
        links = RaggedIds(np.concatenate(found).astype("int32"), list(map(len, found)))
        write(f"alignments  {len(links.ids):,} pairs of tokens, found by a lexicon")
        return links
    links = links.select(batches.is_used)
    texts = (np.array(side, object)[batches.is_used] for side in (corpus.source, corpus.target))
    is_same = np.ones(len(links.lengths), bool)
    for side, numbers in zip(texts, words, strict=True):
        is_same &= [
            len(text.split()) == own[-1] + 1 for text, own in zip(side, numbers, strict=True)
        ]
    if not is_same.any():
        raise InputError(
            "Expected a tokenizer whose words are those that white space ends, of which alignments "
            f"are. Received: {tokenizers[0]!r:.80}. Use a SentencePiece tokenizer, or text with "
            "spaces around punctuation."
        )
    links = RaggedIds(links.ids[np.repeat(is_same, links.lengths)], links.lengths * is_same)
    write(f"alignments  {len(links.ids):,} pairs of words")
    if not is_same.all():
        num_without = np.count_nonzero(~is_same)
        write(f"            without {num_without:,} sentences that the tokenizer splits otherwise")
    return links
