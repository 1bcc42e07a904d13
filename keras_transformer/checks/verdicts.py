"""A check, what it says, and the list of all checks."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from keras_transformer.config.settings import check_known

if TYPE_CHECKING:
    from keras_transformer.checks.subject import Subject


class Verdict(NamedTuple):
    """What a check says of a model."""

    status: Literal["held", "failed", "not applicable"]
    found: str
    """The number or the fact behind it."""
    advice: str = ""
    """What to do where it failed."""


def held(found: str) -> Verdict:
    return Verdict("held", found)


def failed(found: str, advice: str) -> Verdict:
    return Verdict("failed", found, advice)


def not_applicable(reason: str) -> Verdict:
    return Verdict("not applicable", reason)


MISSING = {
    "model": "there is no Keras model",
    "batch": "no batch was given",
    "texts": "no tokenizer, or no text",
    "train_texts": "no text of the training",
    "translator": "only an export is looked at as a whole",
    "path": "there is no export",
}
"""Why a check does not apply, by what it needs."""


class Check(NamedTuple):
    """A function of a `Subject`, and what is known of it."""

    function: "Callable[[Subject], Verdict]"
    needs: str
    """The attribute of the subject without which the check does not apply."""
    is_quick: bool
    """Whether `train --dry-run` makes it, too."""


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they are made."""


def check(
    name: str, needs: str = "model", is_quick: bool = False
) -> "Callable[[Callable[[Subject], Verdict]], Callable[[Subject], Verdict]]":
    """Returns a decorator that adds a function of a `Subject` to `CHECKS`.

    Args:
        name: of the check.
        needs: "model", "batch", "texts", "train_texts" or "translator", see `Subject`: without it,
            the check does not apply.
        is_quick: whether `train --dry-run` makes the check, too.

    Example:
        @check("few tokens")
        def few_tokens(subject):
            if subject.vocab_size <= 100_000:
                return held(f"{subject.vocab_size:,} tokens")
            return failed(f"{subject.vocab_size:,} tokens", "Train a smaller vocabulary.")
    """

    def register(function):
        CHECKS[name] = Check(function, needs, is_quick)
        return function

    return register


def verdicts(
    subject: "Subject", names: Iterable[str] | None = None, only_quick: bool = False
) -> Iterator[tuple[str, Verdict]]:
    """Yields `(name, verdict)` of each check.

    An error within a check is a verdict, too: the model refuses what it should take.

    Args:
        subject: `Subject`.
        names: the checks to make; None: all.
        only_quick: whether the slow ones are left out.
    Raises:
        InputError: there is no check of such a name.
    """
    for name in names or ():
        check_known(name, CHECKS, "a check")
    for name, (function, needs, is_quick) in CHECKS.items():
        if (names is not None and name not in names) or (only_quick and not is_quick):
            continue
        if not subject.has(needs):
            yield name, not_applicable(MISSING[needs])
            continue
        try:
            yield name, function(subject)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            found = f"{type(error).__name__}: {lines[-1].strip()}"
            yield name, failed(found, "The model, or its save, should take what the check gives.")
