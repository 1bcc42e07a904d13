"""What happens to the user's text: in its tokenizers, and in a translator, whatever computes it."""

import unicodedata

import numpy as np

from keras_transformer.checks.verdicts import check, failed, held, not_applicable

MAX_TEXTS = 1000
"""Texts of a side that are looked at, at even distances."""
MAX_SHARE = 0.01
"""Share of the lines or tokens that may be wrong."""
SENTENCES = ["A dog runs.", "Two men are standing in the snow, and one of them waves.", "Hello"]
"""What is translated where there is no text."""


def _sides(subject):
    """Returns `(name, tokenizer, texts)` of each side that has a text."""
    sides = ["text"] if len(subject.texts) == 1 else ["source", "target"]
    tokenizers = [*subject.tokenizers, subject.tokenizers[-1]]
    return [
        (name, tokenizer, list(texts[:: max(1, len(texts) // MAX_TEXTS)]))
        for name, tokenizer, texts in zip(sides, tokenizers, subject.texts, strict=False)
    ]


def _ids(tokenizer, texts):
    """Returns the ids of each text. Our tokenizers read lists without TensorFlow."""
    encode = getattr(tokenizer, "encode_on_host", tokenizer.encode)
    return [list(row) for row in encode(texts)]


def _unknown(tokenizer):
    return getattr(tokenizer, "unknown_ids", [getattr(tokenizer, "unk_id", None)])


def _plain(text):
    return " ".join(unicodedata.normalize("NFKC", text).split())


@check("tokenizer round trip", needs="texts")
def round_trip(subject):
    """A translation can have no text that the tokenizer cannot give back."""
    sides = _sides(subject)
    for name, tokenizer, texts in sides:
        rows, unknown = _ids(tokenizer, texts), set(_unknown(tokenizer))
        decoded = getattr(tokenizer, "decode_on_host", tokenizer.decode)(rows)
        known = [not unknown & set(row) for row in rows]
        wrong = [
            (text, other)
            for text, other, is_known in zip(texts, decoded, known, strict=True)
            if is_known and _plain(text) != _plain(other)
        ]
        if len(wrong) > MAX_SHARE * sum(known):
            text, other = wrong[0]
            return failed(
                f"{len(wrong):,} of {sum(known):,} {name} lines come back as others: {text!r:.60} "
                f"as {other!r:.60}",
                "Look at its normalization and at how it writes spaces.",
            )
    return held(f"{sum(len(texts) for *_, texts in sides):,} lines")


@check("unknown tokens", needs="texts")
def unknown_tokens(subject):
    """An unknown character is lost."""
    shares = {}
    for name, tokenizer, texts in _sides(subject):
        ids = np.concatenate([[], *_ids(tokenizer, texts)])
        shares[name] = float(np.mean(np.isin(ids, _unknown(tokenizer)))) if len(ids) else 0.0
    found = ", ".join(f"{share:.2%} of the {name}" for name, share in shares.items())
    if max(shares.values()) > MAX_SHARE:
        return failed(found, "Train the tokenizer on text like this.")
    return held(found)


@check("lengths", needs="texts")
def lengths(subject):
    """What is longer than the model reads is cut."""
    limit = getattr(subject.model, "longest_input", None) or subject.max_length
    if limit is None:
        return not_applicable("there is no limit")
    sides = _sides(subject)
    counts = [len(row) + 1 for _, tokenizer, texts in sides for row in _ids(tokenizer, texts)]
    share = float(np.mean(np.array(counts) > limit))
    found = f"the longest line has {max(counts)} tokens, the limit is {limit}"
    if share > MAX_SHARE:
        return failed(f"{found}: {share:.1%} of the lines are cut", "Raise it, or split sentences.")
    return held(found)


@check("validation is not in the training text", needs="train_texts")
def overlap(subject):
    """Scores on text that was trained on say nothing about new text."""
    pairs = list(zip(*subject.texts, strict=True))
    trained = set(pairs) & set(zip(*subject.train_texts, strict=True))
    count = sum(pair in trained for pair in pairs)
    found = f"{count:,} of {len(pairs):,} pairs are in both"
    if count > MAX_SHARE * len(pairs):
        return failed(
            found, "Remove them from the training text (keras-transformer clean --against)."
        )
    return held(found)


@check("translations alone and together", needs="translator")
def alone_and_together(subject):
    """Who else asks must not change an answer."""
    texts = list(subject.texts[0][:8]) if subject.texts else SENTENCES
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
