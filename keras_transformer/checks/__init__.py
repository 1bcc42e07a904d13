"""Checks of any model that maps token ids to logits: is it right?

Each check is a short function of a `Subject`, with its reason, that returns a `Verdict`; `check`
adds one of your own.
"""

# Each of these adds its checks to the list, in this order.
# isort: off
from keras_transformer.checks import model_checks  # noqa: F401
from keras_transformer.checks import activation_checks  # noqa: F401
from keras_transformer.checks import decoding_checks  # noqa: F401
from keras_transformer.checks import saving_checks  # noqa: F401
from keras_transformer.checks import batch_checks  # noqa: F401
from keras_transformer.checks import text_checks  # noqa: F401
from keras_transformer.checks import speed_checks  # noqa: F401

# isort: on
from keras_transformer.checks.subject import Subject
from keras_transformer.checks.verdicts import (
    CHECKS,
    Verdict,
    check,
    failed,
    held,
    not_applicable,
    verdicts,
)

__all__ = ["CHECKS", "Subject", "Verdict", "check", "failed", "held", "not_applicable", "verdicts"]
