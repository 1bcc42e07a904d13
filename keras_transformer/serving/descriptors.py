"""File descriptors: each connection takes one, and the system allows so many."""

import contextlib
import dataclasses
import os
import resource

from keras_transformer import console

NUM_OTHERS = 256
"""Descriptors for what is no connection within the limit: probes, files of versions, threads."""


def fit_connections(settings):
    """Returns the settings with no more connections than the process may have open.

    Raises the process's limit of open files where that is allowed and needed; where it is not
    allowed, lowers `max_connections` and says so.

    Args:
        settings: `ServingConfig`.
    Raises:
        ValueError: the system allows too few files for any connection.
    """
    others = _num_open() + NUM_OTHERS
    most = _raised_limit(others + settings.max_connections) - others
    if most >= settings.max_connections:
        return settings
    allowed = others + most
    if most < 2:
        raise ValueError(
            f"Expected a process that may open {others + 2} files at least. Received: {allowed}. "
            "Raise its hard limit of open files (ulimit -Hn)."
        )
    with contextlib.suppress(OSError):  # nobody reads it
        console.say(
            f"warning: {most} connections instead of {settings.max_connections}, as this process "
            f"may open at most {allowed} files. Raise its hard limit (ulimit -Hn), or lower "
            "--max-connections."
        )
    return dataclasses.replace(settings, max_connections=most)


def _raised_limit(needed):
    """Returns the limit of open files, which is raised to what is needed if that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):  # a system may allow less than it says
        return soft
    return raised


def _num_open():
    """Returns how many files this process has open."""
    return len(os.listdir("/dev/fd"))
