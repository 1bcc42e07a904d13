"""The limit of open files, with a simulated system."""

import resource

import pytest

from keras_transformer.serving import http_server
from keras_transformer.serving.settings import ServingConfig

OTHERS = 20 + http_server.NUM_OTHER_FILES


@pytest.fixture
def limits(monkeypatch):
    """A process with 20 open files; its (soft, hard) limit can be set."""
    limits = {"now": None, "is_fixed": False}

    def change(_, value):
        if limits["is_fixed"]:
            raise ValueError("not allowed")
        limits["now"] = value

    monkeypatch.setattr(http_server, "_num_open", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", change)
    return limits


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 1024, 1024),
        (OTHERS + 512, 4096, OTHERS + 512),
        (256, 4096, OTHERS + 512),
        (256, resource.RLIM_INFINITY, OTHERS + 512),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_the_limit_is_raised_to_what_is_needed(limits, caplog, soft, hard, raised):
    limits["now"] = (soft, hard)
    settings = ServingConfig()
    assert http_server.fit_connections(settings) is settings
    assert limits["now"] == (raised, hard)
    assert caplog.text == ""


@pytest.mark.parametrize("is_fixed", [False, True])
def test_where_it_cannot_be_raised_there_are_fewer_connections(limits, caplog, is_fixed):
    limits["now"] = (OTHERS + 100, 4096 if is_fixed else OTHERS + 100)
    limits["is_fixed"] = is_fixed
    settings = http_server.fit_connections(ServingConfig(max_rows=5))
    assert settings.max_connections == 100 and settings.max_rows == 5
    assert (
        f"100 connections instead of 512, because this process may open at most {OTHERS + 100}"
        in (caplog.text)
    )


def test_a_limit_for_no_connection_is_refused(limits):
    limits["now"] = (64, OTHERS + 1)
    with pytest.raises(
        ValueError, match=f"Expected a process that may open at least {OTHERS + 2} files"
    ):
        http_server.fit_connections(ServingConfig())


def test_the_ports_share_the_connections():
    for number in (2, 3, 5, 512):
        settings = ServingConfig(max_connections=number)
        shares = settings.max_rest_connections, settings.max_grpc_connections
        assert min(shares) >= 1 and sum(shares) == number
    with pytest.raises(ValueError, match="Received: max_connections=1. Raise it."):
        ServingConfig(max_connections=1)
