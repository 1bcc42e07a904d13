"""Dataclass fields whose values are checked against their annotations.

A field is written as `name: Annotated[type, meaning] = default`. Error messages and the help of the
command line show the meaning.
"""

import contextlib
import dataclasses
import difflib
import functools
import math
import os
import pathlib
import sys
import types
import typing
from typing import Annotated, Literal, NamedTuple

from keras_transformer.config.yaml import yaml_word
from keras_transformer.errors import InputError


class Range(NamedTuple):
    """The numbers that a setting accepts: in words, and as a function."""

    expected: str
    accepts: typing.Callable


def processor_features() -> str:
    """Returns those of `PROCESSOR_FEATURES` that this processor has; "" where nothing says it."""
    with contextlib.suppress(OSError):
        words = pathlib.Path("/proc/cpuinfo").read_text().split()
        return " ".join(name for name in PROCESSOR_FEATURES if name in words)
    return ""


def between(least, most, what="a whole number"):
    """Returns the `Range` of the numbers from `least` to `most`."""
    return Range(f"{what} from {least} to {most:,}", lambda number: least <= number <= most)


NUM_CORES = (  # that this process may use, if the system reports them
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)
PROCESSOR_FEATURES = "avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimd", "sve"
"""Features of processors on which the speed of products depends."""

LARGEST = 2**31 - 1  # limit of sizes and seeds in TensorFlow and NumPy
Count = Annotated[int, Range(f"a whole number from 1 to {LARGEST}", lambda n: 1 <= n <= LARGEST)]
CountOrZero = Annotated[
    int, Range(f"a whole number from 0 to {LARGEST}", lambda n: 0 <= n <= LARGEST)
]
Positive = Annotated[float, Range("a number above 0", lambda value: value > 0)]
PositiveOrZero = Annotated[float, Range("a number of at least 0", lambda value: value >= 0)]
Share = Annotated[float, Range("a number from 0 to below 1", lambda value: 0 <= value < 1)]
ShareOrAll = Annotated[float, Range("a number from 0 to 1", lambda value: 0 <= value <= 1)]


class Setting(NamedTuple):
    """One field of a group of settings."""

    annotation: object
    default: object
    meaning: str


@functools.cache
def settings(group_class):
    """Returns the fields of a group's dataclass: dict from name to `Setting`."""
    annotations = typing.get_type_hints(group_class, include_extras=True)
    found = {}
    for field in dataclasses.fields(group_class):
        annotation, *limits, meaning = typing.get_args(annotations[field.name])
        if limits:
            annotation = Annotated[(annotation, *limits)]
        found[field.name] = Setting(annotation, field.default, meaning)
    return found


@dataclasses.dataclass(frozen=True)
class SettingsGroup:
    """A group of settings whose values are checked against their annotations; `GROUP` is its name.

    Raises:
        ValueError: a value of the wrong type or outside its range.
    """

    def __post_init__(self):
        for name, setting in settings(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, os.PathLike):
                value = os.fspath(value)
                object.__setattr__(self, name, value)
            if not accepts(setting.annotation, value):
                raise InputError(
                    f"Expected {name} to be {in_words(setting.annotation)}. "
                    f"Received: {self.GROUP}.{name}={value!r}. "
                    f"Its meaning: {setting.meaning} The default is {yaml_word(setting.default)}."
                )


def check_known(name, known, what):
    """Raises `InputError` for an unknown name, with the known names and the most similar one."""
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        remedy = f"Did you mean {close[0]}?" if close else "Choose a known one."
        raise InputError(f"Expected {what}: {', '.join(known)}. Received: {name}. {remedy}")


def accepts(annotation, value):
    """Returns whether a value has the type of an annotation; a whole number is also a number."""
    if annotation is types.NoneType:
        return value is None
    if annotation is float:
        if accepts(int, value):
            return abs(value) <= sys.float_info.max
        return isinstance(value, float) and math.isfinite(value)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation is str:
        return isinstance(value, str) and "\0" not in value  # no path can contain it
    if annotation is bool:
        return isinstance(value, bool)
    if typing.get_origin(annotation) is Literal:
        return value in typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated:
        number, allowed = typing.get_args(annotation)
        return accepts(number, value) and allowed.accepts(value)
    if typing.get_origin(annotation) is tuple:
        return isinstance(value, tuple)  # of groups, which have checked themselves
    return any(accepts(alternative, value) for alternative in typing.get_args(annotation))


def in_words(annotation):
    """Returns what an annotation expects, for an error message."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    words[types.NoneType] = "null"
    if annotation in words:
        return words[annotation]
    if typing.get_origin(annotation) is Literal:
        return " or ".join(typing.get_args(annotation))
    if typing.get_origin(annotation) is Annotated:
        return typing.get_args(annotation)[1].expected
    if typing.get_origin(annotation) is tuple:
        return "a list"
    return " or ".join(in_words(alternative) for alternative in typing.get_args(annotation))


def plain_type(annotation):
    """Returns the type in an annotation: bool, int, float, str, or the group of a list's items."""
    if isinstance(annotation, type):
        return annotation
    first = typing.get_args(annotation)[0]
    return type(first) if typing.get_origin(annotation) is Literal else plain_type(first)
