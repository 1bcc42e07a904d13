"""What a command says while it works."""

import time

import pytest

from keras_transformer.cli import progress


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(progress.console, "say", lines.append)
    return lines


def test_what_takes_long_is_said_and_how_long(said, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.001)
    end = time.monotonic() + 30
    with progress.working("loading"):
        while len(said) < 3 and time.monotonic() < end:
            time.sleep(0.001)
    number = len(said)
    assert said[:3] == ["loading", "loading, 0 s so far", "loading, 0 s so far"]
    time.sleep(0.01)
    assert len(said) == number


def test_what_is_done_at_once_is_not_said(said, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 1.5)
    with pytest.raises(ValueError, match="wrong"), progress.working("loading"):
        raise ValueError("wrong")
    assert said == []
