"""Plants faults of web text in a fifth of Multi30k's training pairs, and says which are left.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/dirty_text.py FOLDER
    KERAS_TRANSFORMER_DATA=DATA python benchmarks/dirty_text.py FOLDER --kept clean.en clean.de

The first command writes `dirty.en` and `dirty.de`, and `faults.txt` with the fault of each line.
The second counts, for each fault, the pairs that `keras-transformer clean` has kept of these files,
as they are or mended. docs/guides/cleaning.md has the trainings on both.
"""

import argparse
import collections
import pathlib
import sys

import numpy as np
from pinned import multi30k

from keras_transformer.data.cleaning import Cleaner
from keras_transformer.files.text import iterate_lines, written_lines

SHARE, SEED = 0.2, 1
FAULTS = ("swapped", "untranslated", "other sentence", "French", "cut", "markup", "characters")


def faulty(fault, pair, other, french):
    """Returns a pair with a fault.

    Args:
        fault: one of `FAULTS`.
        pair: (English, German).
        other: the German of another pair.
        french: the French of this pair.
    """
    source, target = pair
    return {
        "swapped": (target, source),
        "untranslated": (source, source),
        "other sentence": (source, other),
        "French": (source, french),
        "cut": (source, " ".join(target.split()[:2])),
        "markup": (source, f'<a href="?id=1">{target}</a>'),
        "characters": (source, target.encode("ascii", "replace").decode().replace("?", "\ufffd")),
    }[fault]


def plant(data, folder):
    sides = [list(iterate_lines(data / f"train.{name}.gz")) for name in ("en", "de", "fr")]
    pairs = list(zip(*sides[:2], strict=True))
    rng = np.random.default_rng(SEED)
    chosen = rng.permutation(len(pairs))[: int(SHARE * len(pairs))]
    found = [""] * len(pairs)
    dirty = list(pairs)
    for number, i in enumerate(chosen):
        fault = FAULTS[number % len(FAULTS)]
        other = pairs[rng.integers(len(pairs))][1]
        made = faulty(fault, pairs[i], other, sides[2][i])
        if made != pairs[i]:  # some German has no character outside ASCII
            dirty[i], found[i] = made, fault
    folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / name for name in ("dirty.en", "dirty.de", "faults.txt"))
    with written_lines(*paths) as (source, target, faults):
        for pair, fault in zip(dirty, found, strict=True):
            for write, text in zip((source, target, faults), (*pair, fault), strict=True):
                write(text)


def count_kept(folder, kept):
    """Prints how many pairs with each fault there are, and how many of them were kept."""
    dirty = zip(*(iterate_lines(folder / f"dirty.{name}") for name in ("en", "de")), strict=True)
    left = collections.Counter(zip(*map(iterate_lines, kept), strict=True))
    planted, remaining = collections.Counter(), collections.Counter()
    mended = Cleaner(filters=[]).clean(dirty)
    for pair, fault in zip(mended, iterate_lines(folder / "faults.txt"), strict=True):
        planted[fault] += 1
        if left[pair.source, pair.target]:
            left[pair.source, pair.target] -= 1
            remaining[fault] += 1
    for fault, number in sorted(planted.items()):
        print(f"| {fault or 'none'} | {number:,} | {remaining[fault]:,} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path, help="of dirty.en, dirty.de and faults.txt")
    parser.add_argument("--kept", nargs=2, type=pathlib.Path, help="what clean has kept of them")
    arguments = parser.parse_args()
    if arguments.kept is None:
        plant(multi30k(), arguments.folder)
    else:
        count_kept(arguments.folder, arguments.kept)


if __name__ == "__main__":
    sys.exit(main())
