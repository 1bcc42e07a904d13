"""Random segmentations of a SentencePiece model: BPE-dropout, or a draw of unigram tokens.

A seed decides every draw, so that each process draws the same. The draws of the SentencePiece
library depend on the process, and its BPE never tries a merge again that it has dropped once.
"""

import functools
import itertools
import math
import random
import re
from bisect import bisect

from keras_transformer.errors import InputError
from keras_transformer.files.text import without_surrogates
from keras_transformer.tokenizers.sentence_piece_model import SPACE, Piece, parsed

UNKNOWN_PENALTY = 10.0  # SentencePiece's: how much less than any token an unknown one scores
NUM_CACHED_WORDS = 2**15
LONGEST_CACHED = 32  # characters: a whole sentence without spaces takes memory, and rarely recurs


class SubwordSampler:
    """Draws segmentations of texts.

    The words of a text are sampled one after the other, because tokens rarely continue after a
    space. If those of the model do, the whole text counts as a word. User symbols stay whole.

    Args:
        processor: the `SentencePieceProcessor` of a model.
    Raises:
        ValueError: the model is neither BPE nor unigram.
    """

    def __init__(self, processor):
        proto = parsed(processor.serialized_model_proto())
        types = proto.trainer_spec.ModelType
        model_type = proto.trainer_spec.model_type
        if model_type not in (types.BPE, types.UNIGRAM):
            raise InputError(
                "Expected a BPE or unigram model, which have several segmentations of a text. "
                f"Received: a SentencePiece model of the type {types.Name(model_type)}. "
                "Set sampling to 0."
            )
        self._normalize = processor.normalize
        self._ids = _Ids(proto)
        scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == Piece.NORMAL}
        segmentations = BpeDropout if model_type == types.BPE else UnigramSampling
        self._segmentations = segmentations(scores, self._ids)
        symbols = [piece.piece for piece in proto.pieces if piece.type == Piece.USER_DEFINED]
        symbols = map(re.escape, sorted(symbols, key=len, reverse=True))
        self._symbol = re.compile(f"({'|'.join(symbols) or '(?!)'})")
        crosses = any(SPACE in piece.lstrip(SPACE) for piece in scores)
        self._word = re.compile("(?s).+" if crosses else f"{SPACE}*[^{SPACE}]+|{SPACE}+")

    def rows(self, sentences, sampling, seed):
        """Returns an iterator over the ids of each sentence: lists, with the model's own ids.

        Args:
            sentences, sampling, seed: see `SentencePieceTokenizer.encode_sampled`.
        Raises:
            ValueError: `sampling` is not above 0 and at most 1.
        """
        rows = self.rows_of_parts(([sentence] for sentence in sentences), sampling, seed)
        return (row for (row,) in rows)

    def rows_of_parts(self, sentences, sampling, seed):
        """As `rows`, for sentences that are lists of parts; returns a row for each of its parts."""
        if not 0 < sampling <= 1:
            raise InputError(
                f"Expected sampling above 0 and at most 1. Received: sampling={sampling}"
            )
        uniforms = (random.Random((seed << 32) + i).random for i in itertools.count())
        return (
            [self._row(part, sampling, uniform) for part in parts]
            for parts, uniform in zip(sentences, uniforms, strict=False)
        )

    def _row(self, sentence, sampling, uniform):
        draw = self._segmentations.drawer(sampling, uniform)
        row = []
        parts = self._symbol.split(self._normalize(without_surrogates(sentence)))
        for i, part in enumerate(parts):
            for word in [] if i % 2 else self._word.findall(part):
                row += draw(word)
            if i % 2:
                row += self._ids[part]
        unknown = self._ids.unknown
        if unknown in row:  # a run of unknown characters is one token
            row = [
                i
                for i, before in zip(row, [None, *row[:-1]], strict=True)
                if not i == before == unknown
            ]
        return row


def cached(function):
    """Returns a function of a word, and of more, that remembers its values for short words."""
    remembered = functools.lru_cache(NUM_CACHED_WORDS)(function)

    def call(word, *args):
        return (remembered if len(word) <= LONGEST_CACHED else function)(word, *args)

    return call


class _Ids(dict):
    """From a token to the tuple of its ids, which are several if it is spelled in bytes."""

    def __init__(self, proto):
        super().__init__()
        self._bytes = {}
        for i, piece in enumerate(proto.pieces):
            if piece.type in (Piece.NORMAL, Piece.USER_DEFINED):
                self[piece.piece] = (i,)
            elif piece.type == Piece.UNKNOWN:
                self.unknown = i
            elif piece.type == Piece.BYTE and proto.trainer_spec.byte_fallback:
                self._bytes[int(piece.piece[3:5], 16)] = i  # <0xFF>

    def __missing__(self, piece):
        if self._bytes:
            return tuple(self._bytes[byte] for byte in piece.encode())
        return (self.unknown,)

    def of(self, pieces):
        return tuple(itertools.chain.from_iterable(map(self.__getitem__, pieces)))


class BpeDropout:
    """Byte-pair encoding in which each merge may fail (Provilkov et al., 2020, algorithm 1).

    In each step, every possible merge is left out with probability p, drawn anew, and the best of
    the others is done. The word is finished when none is left.

    Args:
        scores: dict from token to score; the pair with the highest score is merged first, and the
            first of equal pairs.
        ids: `_Ids`.
    """

    def __init__(self, scores, ids):
        ranks = {score: rank for rank, score in enumerate(sorted({*scores.values()}, reverse=True))}
        self._ranks = {piece: ranks[score] for piece, score in scores.items()}
        self._last = len(ranks)  # of pairs that are no token
        self._ids = ids
        self._plain = cached(self._plain)

    def drawer(self, sampling, uniform):
        """Returns a function from a word to the ids of a draw; `uniform` returns random numbers."""
        dropped = Dropped(sampling, uniform)

        def draw(word):
            ids, num_merges = self._plain(word)
            if num_merges <= dropped.num_before:  # as most words, without a look at each merge
                dropped.num_before -= num_merges
                return ids
            return self._ids.of(self._merged(word, dropped))

        return draw

    def _plain(self, word):
        """Returns the ids of a word without dropout, and the number of its merges."""
        pieces = self._merged(word, lambda: False)
        return self._ids.of(pieces), len(word) - len(pieces)

    def _merged(self, word, dropped):
        """Returns the tokens of a word. `dropped` draws whether a merge is left out."""
        get_rank, last = self._ranks.get, self._last
        pieces = list(word)
        ranks = [get_rank(a + b, last) for a, b in itertools.pairwise(pieces)]
        while ranks:
            left = ranks
            best = min(left)
            while best < last and dropped():
                left = left.copy()
                left[left.index(best)] = last
                best = min(left)
            if best == last:
                break
            i = left.index(best)
            pieces[i] = merged = pieces[i] + pieces.pop(i + 1)
            del ranks[i]
            if i:
                ranks[i - 1] = get_rank(pieces[i - 1] + merged, last)
            if i < len(ranks):
                ranks[i] = get_rank(merged + pieces[i + 1], last)
        return pieces


class Dropped:
    """Draws that are True with a probability: a random number for each that is, not for each.

    Args:
        probability: above 0 and at most 1.
        uniform: function that returns random numbers between 0 and 1.
    """

    def __init__(self, probability, uniform):
        self._uniform = uniform
        self._scale = 1 / math.log1p(-probability) if probability < 1 else 0.0
        self.num_before = self._draw()
        """How many draws are False before the next True."""

    def __call__(self):
        if self.num_before:
            self.num_before -= 1
            return False
        self.num_before = self._draw()
        return True

    def _draw(self):  # the geometric distribution
        return int(self._scale * math.log(1.0 - self._uniform()))


class UnigramSampling:
    """Draws a segmentation with probability P^alpha, normalized (Kudo, 2018, section 3.3).

    P is the product of the probabilities of the tokens. Forward filtering sums over all
    segmentations, and tokens are drawn backward from the end of the word.

    Args:
        scores: dict from token to the logarithm of its probability.
        ids: `_Ids`.
    """

    def __init__(self, scores, ids):
        self._scores = scores
        self._longest = max(map(len, scores))
        self._unknown_score = min(scores.values()) - UNKNOWN_PENALTY
        self._ids = ids
        self._lattice = cached(self._lattice)

    def drawer(self, sampling, uniform):
        """Returns a function from a word to the ids of a draw; `uniform` returns random numbers."""

        def draw(word):
            lattice = self._lattice(word, sampling)
            drawn = []
            end = len(word)
            while end:
                bounds, tokens = lattice[end]
                end, ids = tokens[bisect(bounds, uniform()) if bounds else 0]
                drawn.append(ids)
            return itertools.chain.from_iterable(reversed(drawn))

        return draw

    def _lattice(self, word, alpha):
        """Returns for each position the tokens that end there, and the bounds between them.

        A uniform random number chooses the token between whose bounds it lies: bounds are sums of
        the probabilities. A token is a pair of the position of its start, and its ids.
        """
        lattice = [((), ())]
        totals = [0.0]  # logarithm of the sum over all segmentations up to a position
        for end in range(1, len(word) + 1):
            starts = [
                start
                for start in range(max(0, end - self._longest), end)
                if start == end - 1 or word[start:end] in self._scores
            ]
            pieces = [word[start:end] for start in starts]
            logits = [
                totals[start] + alpha * self._scores.get(piece, self._unknown_score)
                for start, piece in zip(starts, pieces, strict=True)
            ]
            highest = max(logits)
            sums = [*itertools.accumulate(math.exp(logit - highest) for logit in logits)]
            totals.append(highest + math.log(sums[-1]))
            bounds = tuple(each / sums[-1] for each in sums[:-1])
            ids = map(self._ids.__getitem__, pieces)
            lattice.append((bounds, tuple(zip(starts, ids, strict=True))))
        return lattice
