"""File descriptors: each connection takes one, and the system limits their number."""

import dataclasses
import os
import resource

from keras_transformer.errors import InputError
from keras_transformer.serving import LOG

NUM_OTHERS = 256
"""Descriptors kept free for everything else: probes, the files of versions, threads."""


def fit_connections(settings):
    """Returns the settings with at most as many connections as the process may open.

    Raises the process's limit of open files if needed. If the system does not allow that, lowers
    `max_connections` and prints a warning.

    Args:
        settings: `ServingConfig`.
    Raises:
        InputError: the system allows too few open files for even two connections.
    """
    others = _num_open() + NUM_OTHERS
    most = _raised_limit(others + settings.max_connections) - others
    if most >= settings.max_connections:
        return settings
    allowed = others + most
    if most < 2:
        raise InputError(
            f"Expected a process that may open at least {others + 2} files. Received: {allowed}. "
            "Raise its hard limit of open files (ulimit -Hn)."
        )
    LOG.warning(
        f"warning: at most {most} connections instead of {settings.max_connections}, because "
        f"this process may open at most {allowed} files. Raise its hard limit (ulimit -Hn), "
        "or lower --max-connections."
    )
    return dataclasses.replace(settings, max_connections=most)


def _raised_limit(needed):
    """Raises the limit of open files to `needed` if that is allowed, and returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):  # a system may allow less than its hard limit
        return soft
    return raised


def _num_open():
    """Returns the number of files that this process has open."""
    return len(os.listdir("/dev/fd"))
