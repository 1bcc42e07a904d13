"""A loaded SavedModel: what is warmed up when, and what closing waits for."""

import threading

import pytest

from keras_transformer.serving.loaded_model import DEFAULT_SIGNATURE, LoadedModel, Signature


@pytest.fixture
def calls(monkeypatch):
    """The names of the signatures in the order in which they are called."""
    calls, call = [], Signature.__call__

    def recorded(self, inputs, timeout=None):
        calls.append(self.name)
        return call(self, inputs, timeout)

    monkeypatch.setattr(Signature, "__call__", recorded)
    return calls


def test_the_other_signatures_are_warmed_up_afterwards(exported, calls):
    model = LoadedModel(exported)
    assert set(calls) == {DEFAULT_SIGNATURE}
    model.warm_up_others()
    assert set(calls) == set(model.signatures)
    assert calls.count(DEFAULT_SIGNATURE) == calls.index("n_best")  # none a second time
    model.close()


def test_closing_waits_for_one_request_and_ends_the_warm_up(exported, monkeypatch):
    model, begun, may_end, called = LoadedModel(exported), threading.Event(), threading.Event(), []
    call = Signature.__call__

    def slow(self, inputs, timeout=None):
        called.append(self.name)
        begun.set()
        assert may_end.wait(30)
        return call(self, inputs, timeout)

    monkeypatch.setattr(Signature, "__call__", slow)
    threads = [threading.Thread(target=f) for f in (model.warm_up_others, model.close)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()  # a session that is closed in a run would break it
    may_end.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(called) == 1
