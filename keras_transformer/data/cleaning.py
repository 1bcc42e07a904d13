"""Mends sentence pairs and leaves out the bad ones, as they come, with a report that says why."""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.config.settings import check_known
from keras_transformer.data.pair_filters import FILTERS, MENDERS, Known, known_languages
from keras_transformer.errors import InputError

SAMPLE = 20_000
"""Pairs at the beginning of a corpus that show its languages; they are in memory at once."""
CHUNK = 1024
"""Pairs that are scored at once."""
NUM_EXAMPLES = 2
SCORE = "score"
"""The reason of what is left out by its score, which is no filter of a single pair."""
NEEDS = {"language": ("languages", "--languages"), "leaked": ("held_out", "--against")}
"""What the user must say for a filter: a field of `Known`, and its flag."""


class Cleaned(NamedTuple):
    """A pair that has been mended, and perhaps left out."""

    source: str
    target: str
    reason: str
    """Name of the filter that leaves it out; "" for a pair that is kept."""
    original: tuple[str, str]
    menders: tuple[str, ...] = ()
    """Names of those that changed a side."""


class Cleaner:
    """Mends and filters the pairs of a corpus of any size.

    The first `SAMPLE` pairs show the scripts, the words of each side and the length ratio. Memory
    grows by some 80 bytes for each pair that is kept, so that `duplicate` knows it again.

    Args:
        filters: names of `FILTERS`; None: all for which `known` has what they need.
        menders: names of `MENDERS`; None: all.
        known: `Known`, with what the user says.
        score: function of a list of sources and a list of targets that returns how well they go
            together, an array of numbers; or None.
        min_score: pairs that score less are left out; None: the score that 5 % of the first pairs
            do not reach.
    Raises:
        ValueError: an unknown name, or a filter lacks what it needs.

    Example:
        pairs = zip(corpus.source, corpus.target)
        kept = [(each.source, each.target) for each in Cleaner().clean(pairs) if not each.reason]
    """

    def __init__(
        self,
        filters: Sequence[str] | None = None,
        menders: Sequence[str] | None = None,
        known: Known | None = None,
        score: Callable[[list[str], list[str]], Any] | None = None,
        min_score: float | None = None,
    ) -> None:
        self.known = Known() if known is None else known
        self.min_score = min_score
        self._score = score
        lacking = [name for name, (field, _) in NEEDS.items() if not getattr(self.known, field)]
        if filters is None:
            filters = [name for name in FILTERS if name not in lacking]
        for name in filters:
            check_known(name, FILTERS, "filters, some of")
            if name in lacking:
                field, flag = NEEDS[name]
                raise InputError(
                    f"Expected {field}, which the filter {name} needs. Received: none. Give {flag},"
                    " or leave the filter out."
                )
        for language in self.known.languages if "language" in filters else ():
            check_known(language, known_languages(), "languages, such as")
        for name in menders or ():
            check_known(name, MENDERS, "menders, some of")
        # in the order of the tables, whatever that of the names is
        self._filters = {name: FILTERS[name] for name in FILTERS if name in filters}
        wanted = MENDERS if menders is None else menders
        self._menders = {name: MENDERS[name] for name in MENDERS if name in wanted}

    def clean(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Cleaned]:
        """Yields a `Cleaned` for each pair, in their order."""
        mended = (self._mended(pair) for pair in pairs)
        sample = list(itertools.islice(mended, SAMPLE))
        self.known.learn([(each.source, each.target) for each in sample])
        filtered = map(self._filtered, itertools.chain(sample, mended))
        if self._score is None:
            yield from filtered
            return
        first = self._scored(list(itertools.islice(filtered, SAMPLE)))
        if self.min_score is None:
            scores = [score for _, score in first if score is not None]
            self.min_score = float(np.quantile(scores, 0.05)) if scores else 0.0
        yield from self._by_score(first)
        while chunk := list(itertools.islice(filtered, CHUNK)):
            yield from self._by_score(self._scored(chunk))

    def _mended(self, pair):
        changed = []
        sides = pair = tuple(pair)
        for name, mend in self._menders.items():
            before, sides = sides, tuple(map(mend, sides))
            if sides != before:
                changed.append(name)
        return Cleaned(*sides, "", pair, tuple(changed))

    def _filtered(self, pair):
        for name, leaves_out in self._filters.items():
            if leaves_out(pair.source, pair.target, self.known):
                return pair._replace(reason=name)
        return pair

    def _scored(self, pairs):
        """Returns a list of the pairs with their scores; None for those that are left out."""
        kept = [(pair.source, pair.target) for pair in pairs if not pair.reason]
        scores = iter(self._score(*map(list, zip(*kept, strict=True))) if kept else ())
        return [(pair, None if pair.reason else float(next(scores))) for pair in pairs]

    def _by_score(self, scored):
        for pair, score in scored:
            is_bad = score is not None and score < self.min_score
            yield pair._replace(reason=SCORE) if is_bad else pair


class CleaningReport:
    """Counts what was mended and left out, with the first examples; `str()` is a table.

    Attributes:
        num_pairs, num_kept: how many pairs there were, and how many are kept.
    """

    def __init__(self) -> None:
        self.num_pairs = self.num_kept = 0
        self._counts: dict[str, collections.Counter[str]] = {
            "left out": collections.Counter(),
            "mended": collections.Counter(),
        }
        self._examples: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def add(self, pair: Cleaned) -> None:
        """Counts a pair."""
        self.num_pairs += 1
        if pair.reason:
            self._count("left out", pair.reason, (pair.source, pair.target))
            return
        self.num_kept += 1
        for name in pair.menders:
            self._count("mended", name, pair.original)

    def check_some_kept(self) -> None:
        """Raises `ValueError` where nothing is left."""
        if not self.num_kept:
            most = self._counts["left out"].most_common(1)
            reason = "".join(f", {number:,} of them left out by {name}" for name, number in most)
            raise InputError(
                f"Expected pairs to keep. Received: {self.num_pairs:,} pairs{reason}. Check that "
                "both files belong together, or name other filters."
            )

    def as_dict(self) -> dict[str, Any]:
        """Returns the report for a file of JSON."""
        found: dict[str, Any] = {"pairs": self.num_pairs, "kept": self.num_kept}
        for what, counts in self._counts.items():
            found[what.replace(" ", "_")] = {
                name: {"pairs": number, "examples": self._examples[what, name]}
                for name, number in counts.most_common()
            }
        return found

    def __str__(self):
        lines = [self._line("kept", self.num_kept)]
        for what, counts in self._counts.items():
            for name, number in counts.most_common():
                lines.append(self._line(f"{what}: {name}", number))
                lines += [
                    "    " + " | ".join(map(_shown, pair)) for pair in self._examples[what, name]
                ]
        return "\n".join(lines)

    def _line(self, name, number):
        return f"{name:24}{number:>12,}{number / max(1, self.num_pairs):>10.2%}"

    def _count(self, what, name, example):
        self._counts[what][name] += 1
        examples = self._examples.setdefault((what, name), [])
        if len(examples) < NUM_EXAMPLES:
            examples.append(example)


def _shown(text):
    """Returns the beginning of a text, with escapes for what a terminal does not show."""
    text = text if len(text) <= 70 else f"{text[:70]}..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
