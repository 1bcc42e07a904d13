"""How well translators do on short and on long sentences."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from keras_transformer.errors import InputError
from keras_transformer.plots.drawing import (
    colours_of,
    curve_label,
    house_style,
    legend,
    new_figure,
    write,
)
from keras_transformer.translation.evaluation import bleu, length_groups
from keras_transformer.types import StrPath, Texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bleu_by_length(
    sources: Texts,
    references: Texts,
    translations: dict[str, list[str]],
    path: StrPath | None = None,
    edges: Iterable[int] = (9, 12, 15, 19),
) -> "Figure":
    """Draws the BLEU of one or several translators by the number of words of the source.

    Args:
        sources, references: lists of str of the same length.
        translations: dict from the label of a translator to its translations, a list of str.
        path: file to write, or None.
        edges: number of words with which the second group begins, the third, and so on.
    Raises:
        ValueError: lists of different lengths, no sentences or translations, or edges that do not
            rise.

    Example:
        bleu_by_length(["A dog runs."], ["Ein Hund rennt."], {"mine": ["Ein Hund."]}, "lengths.png")
    """
    if not isinstance(translations, dict) or not translations:
        raise InputError(f"Expected a dict from labels to translations. Received: {translations=}.")
    if len(sources) != len(references):
        raise InputError(
            "Expected a reference for each source. Received: "
            f"{len(sources)} sources, {len(references)} references."
        )
    groups = length_groups(sources, edges)
    with house_style():
        figure = new_figure((6.4, 3.6), layout="constrained")
        axis = figure.subplots()
        for (label, texts), colour in zip(
            translations.items(), colours_of(translations), strict=True
        ):
            whole = bleu(texts, [references], hints=False).value
            scores = [
                bleu([texts[i] for i in rows], [references[i] for i in rows], hints=False).value
                for rows in groups.values()
            ]
            label = curve_label(f"{label} ({whole:.1f})")
            axis.plot(range(len(groups)), scores, "o-", color=colour, label=label)
        names = [f"{name}\n{len(rows)} sentences" for name, rows in groups.items()]
        axis.set_xticks(range(len(groups)), names)
        axis.set(xlabel="words of the source", ylabel="BLEU", title="BLEU by length of the source")
        axis.grid(axis="y", color="#e6e6e6")
        legend(axis, title="BLEU of all sentences in brackets")
        write(figure, path)
    return figure
