"""What holds of any translator, whatever computes it."""

from keras_transformer.checks.verdicts import check, failed, held

SENTENCES = ["A dog runs.", "Two men are standing in the snow, and one of them waves.", "Hello"]


def _texts(subject):
    return list(subject.texts[0][:8]) if subject.texts else SENTENCES


@check("translations alone and together", needs="translator")
def alone_and_together(subject):
    """Who else asks must not change an answer."""
    texts = _texts(subject)
    together = subject.translator.translate(texts)
    alone = [subject.translator.translate([text])[0] for text in texts]
    other = [i for i, (a, b) in enumerate(zip(alone, together, strict=True)) if a != b]
    if other:
        return failed(
            f"{len(other)} of {len(texts)} texts have another translation alone, such as "
            f"{texts[other[0]]!r:.60}",
            "Look for statistics over the batch, or for weights in a type that rounds much.",
        )
    return held(f"{len(texts)} texts")


@check("empty text", needs="translator")
def empty_text(subject):
    """A blank line stays blank."""
    found = subject.translator.translate(["", " "])
    texts = [best if isinstance(best, str) else best[0].text for best in found]  # or n best
    if any(text.strip() for text in texts):
        return failed(f"blank lines are translated as {texts!r:.80}", "Answer them by a copy.")
    return held("blank lines stay blank")
