"""Examples for the two objectives of BERT: masked tokens, and the next sentence.

Source: Devlin et al., 2019, section 3.1 and appendix A.1, https://arxiv.org/abs/1810.04805.
Shapes: B batch (rows), T length, M masked positions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.data.ragged_ids import RaggedIds, check_tokenizer
from keras_transformer.data.text_windows import EpochBatches
from keras_transformer.errors import InputError, check_positive_integers, check_seed
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID
from keras_transformer.types import Tensor, Texts

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer

MASK_TOKEN = "[MASK]"
FIRST_TOKEN = END_ID + 1  # the ids before it are padding, unknown, start and end
MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the chosen tokens; the others are kept


def mask_id(tokenizer: "Tokenizer") -> int:
    """Returns the id of the mask token.

    This is the id of [MASK] if the vocabulary contains it, as in a published BERT. Otherwise, it is
    the first id after the vocabulary, so a model needs one more embedding than the tokenizer has
    tokens.
    """
    check_tokenizer(tokenizer)
    pieces = tokenizer.pieces
    return pieces.index(MASK_TOKEN) if MASK_TOKEN in pieces else len(pieces)


def mask_tokens(
    ids: Tensor, vocab_size: int, mask_id: int, rng: np.random.Generator | int, rate: float = 0.15
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chooses tokens to predict, and hides most of them.

    In each row, a share `rate` of the tokens is chosen (rounded, and at least one), but never
    padding, unknown tokens, class tokens, separators or mask tokens. Of the chosen tokens, 80 %
    become the mask token, 10 % a random token, and 10 % stay, so that the model must represent
    every token that it reads.

    Args:
        ids: int array `(B, T)`, padded with 0.
        vocab_size: random tokens are drawn from the ids 4 to `vocab_size - 1`.
        mask_id: see the function of this name.
        rng: `numpy.random.Generator`, or a seed for one.
        rate: share of the tokens, in `(0, 1]`.
    Returns:
        `(masked_ids, positions, labels)`, int32: `(B, T)`, `(B, M)` and `(B, M)`. M is the number
        for a row of T tokens; if a row has fewer, the other positions and labels are 0.
    Raises:
        ValueError: ids have another rank, the rate is outside of `(0, 1]`, or there is no token to
            draw from.
    """
    ids = np.asarray(ids, "int32")
    mask_is_token = FIRST_TOKEN <= mask_id < vocab_size
    num_random = vocab_size - FIRST_TOKEN - mask_is_token
    if ids.ndim != 2 or not 0 < rate <= 1 or num_random < 1:
        raise InputError(
            "Expected ids (B, T), a rate in (0, 1], and a vocabulary with tokens other than the "
            f"mask token and the {FIRST_TOKEN} special ones. Received: ids.shape={ids.shape}, "
            f"rate={rate}, vocab_size={vocab_size}, mask_id={mask_id}."
        )
    rng = np.random.default_rng(rng)
    may_be_chosen = (ids >= FIRST_TOKEN) & (ids != mask_id)
    num_tokens = may_be_chosen.sum(axis=1)
    num_chosen = np.where(num_tokens, np.maximum(np.rint(rate * num_tokens), 1), 0)
    most = max(int(np.rint(rate * ids.shape[1])), 1)
    order = np.where(may_be_chosen, rng.random(ids.shape), 2.0)  # what cannot be chosen is last
    positions = np.argsort(order, axis=1)[:, :most]
    is_chosen = np.arange(positions.shape[1]) < num_chosen[:, None]
    positions = np.where(is_chosen, positions, 0).astype("int32")
    labels = np.where(is_chosen, np.take_along_axis(ids, positions, axis=1), PAD_ID)

    random_ids = FIRST_TOKEN + rng.integers(num_random, size=labels.shape)
    random_ids += mask_is_token & (random_ids >= mask_id)
    draw = rng.random(labels.shape)
    shown = np.where(draw < MASKED_SHARE + RANDOM_SHARE, random_ids, labels)
    shown = np.where(draw < MASKED_SHARE, mask_id, shown)
    masked_ids = ids.copy()
    rows, _ = np.nonzero(is_chosen)
    masked_ids[rows, positions[is_chosen]] = shown[is_chosen]
    return masked_ids, positions, labels.astype("int32")


class MaskedTokenBatches(EpochBatches):
    """Tokenizes documents once, then makes different batches of masked tokens in each epoch.

    A document is cut into spans of whole sentences. A row consists of the class token, a span and a
    separator. With `next_sentence`, a second span and a separator follow. In half of the rows, it
    is the next span of the document, otherwise a second span from another document (from the same
    one if there is only one). Then no span is longer than half of the row, so that the length does
    not reveal which it is.

    The masked tokens, the drawn spans and the order of the rows depend only on `(seed, epoch)`.

    A batch is `(inputs, labels, weights)`. The inputs are {"ids": int32 `(B, T)`,
    "masked_positions": int32 `(B, M)`}, the labels int32 `(B, M)`, and the weights float32
    `(B, M)`: 1 / the number of labels in the batch, or 0 if a row has fewer than M. The sum of the
    weighted losses is the mean loss per token.

    With `next_sentence`, the inputs also have "segment_ids", and labels and weights are
    {"masked_tokens": as above, "next_sentence": `(B,)`}: 0 for the next sentence, 1 for a random
    one, with weights of 1 / B. `TokenCrossEntropy` is then the loss for both.

    Args:
        documents: list of documents, each a list of sentences. A sentence that is too long for a
            span is divided; with `next_sentence`, a last span without a partner is skipped.
        tokenizer: a `Tokenizer`.
        max_length: T, the length of a row; shorter ones are padded to it.
        batch_size: B; the last batch of an epoch may have fewer rows.
        next_sentence: whether rows are pairs, for `BertPretraining(next_sentence=True)`.
        rate: share of the tokens that are predicted.
        shuffle: False gives every epoch the same rows with the same masks, for validation.
        seed: int from 0.
    Raises:
        ValueError: sizes are below 1, the seed is negative, max_length is too small for the
            tokens, the rate is outside of `(0, 1]`, a document is a str, or the documents do not
            fill one row (with next_sentence, two).

    Attributes:
        mask_id: id of the mask token, see the function of this name.
        vocab_size: number of ids that a model needs, including the mask token.
        num_rows: number of rows in an epoch.

    Example:
        batches = MaskedTokenBatches([corpus.source], tokenizer, max_length=32)
        model = keras_transformer.models.BertPretraining(
            keras_transformer.Bert(batches.vocab_size, num_layers=1, d_model=8, num_heads=2)
        )
        inputs, labels, weights = next(batches.arrays())
        logits = model(inputs)  # for `model.fit`, with `steps_per_epoch=len(batches)`
    """

    def __init__(
        self,
        documents: Sequence[Texts],
        tokenizer: "Tokenizer",
        max_length: int = 128,
        batch_size: int = 32,
        next_sentence: bool = False,
        rate: float = 0.15,
        shuffle: bool = True,
        seed: int = 1,
    ) -> None:
        check_positive_integers(max_length=max_length, batch_size=batch_size)
        check_seed(seed)
        documents = list(documents)
        for i, sentences in enumerate(documents):
            if isinstance(sentences, (str, bytes)):
                raise InputError(
                    "Expected a list of documents, each a list of sentences. "
                    f"Received: documents[{i}]={sentences[:30]!r}, a text. Write [sentences] for "
                    "the sentences of one document."
                )
        longest = (max_length - 3) // 2 if next_sentence else max_length - 2
        if longest < 1 or not 0 < rate <= 1:
            raise InputError(
                "Expected a max_length for the special tokens and one token of each span, and a "
                f"rate in (0, 1]. Received: max_length={max_length}, rate={rate}."
            )
        self.max_length = max_length
        self.batch_size = batch_size
        self.next_sentence = next_sentence
        self.rate = rate
        self.shuffle = shuffle
        self.seed = seed
        self.mask_id = mask_id(tokenizer)
        self.vocab_size = max(tokenizer.vocab_size, self.mask_id + 1)

        documents = [RaggedIds.encode(tokenizer, list(each)).texts() for each in documents]
        spans = [_spans(each, longest) for each in documents]
        if next_sentence:
            spans = [each[: len(each) // 2 * 2] for each in spans]
        step = 2 if next_sentence else 1
        self._firsts = [span for each in spans for span in each[::step]]
        self._seconds = [span for each in spans for span in each[1::step]]
        counts = [len(each) // step for each in spans]
        self._starts = np.repeat(np.cumsum(counts) - counts, counts)  # of each row's document
        self._ends = np.repeat(np.cumsum(counts), counts)
        self.num_rows = len(self._firsts)
        if self.num_rows < step:
            raise InputError(
                f"Expected documents with at least {step} rows of text. Received: "
                f"{len(documents)} documents with {self.num_rows}. Give more text, or lower "
                f"max_length={max_length}."
            )

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return -(-self.num_rows // self.batch_size)

    def _epoch(self, number):
        rng = np.random.default_rng([self.seed, number if self.shuffle else 0])
        order = rng.permutation(self.num_rows) if self.shuffle else np.arange(self.num_rows)
        for start in range(0, self.num_rows, self.batch_size):
            yield self._batch(order[start : start + self.batch_size], rng)

    def _batch(self, rows, rng):
        ids = np.full((len(rows), self.max_length), PAD_ID, "int32")
        segment_ids = np.zeros_like(ids)
        is_random = rng.random(len(rows)) < 0.5
        for i, row in enumerate(rows):
            tokens = [START_ID, *self._firsts[row], END_ID]
            if self.next_sentence:
                second = self._other_row(row, rng) if is_random[i] else row
                length = len(tokens)
                tokens += [*self._seconds[second], END_ID]
                segment_ids[i, length : len(tokens)] = 1
            ids[i, : len(tokens)] = tokens
        masked_ids, positions, labels = mask_tokens(
            ids, self.vocab_size, self.mask_id, rng, self.rate
        )
        real = labels != PAD_ID
        weights = real.astype("float32") / np.float32(max(real.sum(), 1))
        inputs = {"ids": masked_ids, "masked_positions": positions}
        if not self.next_sentence:
            return inputs, labels, weights
        return (
            {**inputs, "segment_ids": segment_ids},
            {"masked_tokens": labels, "next_sentence": is_random.astype("int32")},
            {"masked_tokens": weights, "next_sentence": np.full(len(rows), 1 / len(rows), "f4")},
        )

    def _other_row(self, row, rng):
        """Returns a random row of another document, or of the same one if there is only one."""
        start, end = self._starts[row], self._ends[row]
        if end - start == self.num_rows:
            start, end = row, row + 1
        drawn = rng.integers(self.num_rows - (end - start))
        return drawn if drawn < start else drawn + end - start


def _spans(sentences, longest):
    """Returns the text of a document as spans of whole sentences: arrays of at most `longest` ids.

    A sentence that is longer is divided.
    """
    spans, parts, length = [], [], 0
    for sentence in sentences:
        for start in range(0, len(sentence), longest):
            part = sentence[start : start + longest]
            if length + len(part) > longest:
                spans.append(np.concatenate(parts))
                parts, length = [], 0
            parts.append(part)
            length += len(part)
    return [*spans, np.concatenate(parts)] if parts else spans
