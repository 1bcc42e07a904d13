"""What clients of a server do: they wait, read to the end, and ask for its versions."""

import contextlib
import time

import requests


def wait_until(is_true, seconds=300):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)


def received(connection):
    """Returns everything until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionError):  # closed while this side was still sending
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def states(server):
    """Returns dict from version to state."""
    found = requests.get(server.rest, timeout=60).json()["model_version_status"]
    return {status["version"]: status["state"] for status in found}
