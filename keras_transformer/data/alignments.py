"""Which words of a sentence pair translate one another, and the same of its tokens.

Shapes: B batch (pairs), S source length, T target length, N pairs, L links of all pairs.
"""

import re
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.data.parallel import ParallelCorpus
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.errors import InputError
from keras_transformer.files.text import iterate_lines
from keras_transformer.special_ids import END_ID, PAD_ID
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer

PHARAOH = re.compile(r"\s*([0-9]{1,6}-[0-9]{1,6}(\s+|$))*")


def read_links(path: StrPath, corpus: ParallelCorpus) -> RaggedIds:
    """Returns the links in a file of fast_align or eflomal, in the form of Pharaoh: `0-0 1-2`.

    Args:
        path: a file with a line for each line of the text of the corpus: pairs of the number of a
            source word and that of a target word, from 0. Words are split at white space.
        corpus: `ParallelCorpus`, or a part of one.
    Returns:
        `RaggedIds` of int32 `(L, 2)`, the links of each pair of the corpus.
    Raises:
        InputError: another number of lines, a malformed line, or a word that is not there.
    """
    lines = list(iterate_lines(path))
    if len(lines) != corpus.num_lines:
        raise InputError(
            f"Expected alignments of the {corpus.num_lines:,} training pairs, one line for each. "
            f"Received: {path}, with {len(lines):,} lines. Align the same text again."
        )
    links = []
    new_tags = [part.tag is not None for part in corpus.parts]  # each is one more word
    num_added = np.array(new_tags)[corpus.part_of] & ~corpus.is_tagged
    sides = corpus.source, corpus.target
    for i, added, source, target in zip(corpus.lines, num_added.tolist(), *sides, strict=True):
        place = f"{path} line {i + 1}"
        if not PHARAOH.fullmatch(lines[i]):
            raise InputError(
                f"Expected pairs such as 0-0 1-2, of a source word and a target word. Received: "
                f"{place}: {lines[i]!r:.80}. Correct the line; an empty one aligns nothing."
            )
        found = np.array(lines[i].replace("-", " ").split(), "int32").reshape(-1, 2)
        sizes = len(source.split()) - added, len(target.split())
        for link in found[(found >= sizes).any(axis=1)].tolist():
            raise InputError(
                f"Expected words from 0 to {sizes[0] - 1} of the source and to {sizes[1] - 1} of "
                f"the target. Received: {place}: {link[0]}-{link[1]}. Align the text of this "
                "training, split at white space, the source first."
            )
        found[:, 0] += added
        links.append(found)
    return RaggedIds(np.concatenate(links), [len(found) for found in links])


def begins_word(tokenizer: "Tokenizer") -> np.ndarray:
    """Returns for each token of a vocabulary whether it has a space before it, as bool."""
    return np.array([surface.startswith(b" ") for surface in tokenizer.surfaces])


def word_numbers(begins: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns the number of each token's word in its text, from 0; -1 where there is no token.

    Words are those of `translation.explanation`.

    Args:
        begins: from `begins_word`.
        ids: `(B, S)`, each row ended by the end token and padded with 0.
    """
    is_token = (ids != PAD_ID) & (ids != END_ID)
    begins = begins[ids]
    begins[:, 0] = True
    return np.where(is_token, np.cumsum(begins & is_token, axis=1) - 1, -1)


def alignment_of_tokens(
    links: RaggedIds, pairs: np.ndarray, source_words: np.ndarray, target_words: np.ndarray
) -> np.ndarray:
    """Returns to which source tokens each target token is aligned, as float32 `(B, T, S)`.

    Each token of a word is aligned to all tokens of the words that are linked to it, to each by the
    same share. A row is 0 for a token that is aligned to nothing.

    Args:
        links: `RaggedIds` of `(L, 2)`, see `read_links`.
        pairs: int array, the pairs of the batch, at most B.
        source_words, target_words: `(B, S)` and `(B, T)`, from `word_numbers`.
    """
    num_rows = len(source_words)
    # one more row and column, without links, for the number -1
    linked = np.zeros((num_rows, target_words.max() + 2, source_words.max() + 2), "float32")
    sources, targets = links.ids[links.places(pairs)].T
    linked[np.repeat(np.arange(len(pairs)), links.lengths[pairs]), targets, sources] = 1.0
    rows = np.arange(num_rows)[:, None, None]
    aligned = linked[rows, target_words[:, :, None], source_words[:, None]]
    return aligned / np.maximum(aligned.sum(axis=-1, keepdims=True), 1.0)
