"""What a training says first about text that is probably not what was meant."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.data.pair_filters import ENTITY, TAG, identical
from keras_transformer.special_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from keras_transformer.data.parallel import ParallelCorpus
    from keras_transformer.data.ragged_ids import RaggedIds

MENTIONED = 0.01
"""Share of the lines, pairs or tokens from which on something is mentioned."""
MARKUP = re.compile(f"{TAG.pattern}|{ENTITY.pattern}")


def remarks(
    train: "ParallelCorpus", valid: "ParallelCorpus", rows: "Sequence[RaggedIds]"
) -> Iterator[str]:
    """Yields a line of the training's report for each thing that is probably a mistake.

    Args:
        train, valid: the text to train on, and to validate with.
        rows: `(source, target)`, the tokens of the training text.
    """
    for side, texts in (("source", train.source), ("target", train.target)):
        yield from _remark(
            "tabs",
            sum("\t" in text for text in texts),
            len(texts),
            f"{side} lines have a tab: a file of two columns is a tsv (--train F)",
        )
        marked = sum(
            MARKUP.search(text) is not None for text in texts if "<" in text or "&" in text
        )
        yield from _remark(
            "markup",
            marked,
            len(texts),
            f"{side} lines have tags or entities, such as <b> or &amp;: remove them, unless "
            "translations shall have them",
        )
    yield from _remark(
        "equal sides",
        sum(map(identical, train.untagged_source(), train.target)),
        len(train),
        "pairs have the same text on both sides: give the other language for one side, or remove "
        "them (keras-transformer clean)",
    )
    for side, tokens in zip(("source", "target"), rows, strict=True):
        yield from _remark(
            "unknown",
            int((tokens.ids == UNKNOWN_ID).sum()),
            len(tokens.ids),
            f"{side} tokens are unknown characters: the tokenizer was trained on other text",
        )
    validated = list(zip(valid.source, valid.target, strict=True))
    wanted = set(validated)
    trained = {pair for pair in zip(train.source, train.target, strict=True) if pair in wanted}
    yield from _remark(
        "overlap",
        sum(pair in trained for pair in validated),
        len(validated),
        "validation pairs are in the training text, too: scores on new text will be lower "
        "(keras-transformer clean --against removes them)",
    )


def _remark(name, count, total, what):
    if count and count >= MENTIONED * total:
        yield f"{name:<12}{count:,} of {total:,} {what}"
