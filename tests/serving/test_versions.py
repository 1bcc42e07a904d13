"""Versions that appear, hang, fail and disappear, with simulated models."""

import asyncio
import errno
import gc
import os
import re
import threading
import types
import weakref

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import predict_pb2

from keras_transformer.errors import InputError
from keras_transformer.serving import versions as versions_module
from keras_transformer.serving.batching import Batching
from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.grpc_server import Calls
from keras_transformer.serving.grpc_services import Health, PredictionService
from keras_transformer.serving.memory import OneThread
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.settings import ServingConfig
from keras_transformer.serving.versions import ALL, LATEST, Versions

LOAD_SECONDS = 0.5
HANGING = threading.Event()
"""Set when versions that hang may continue."""


class Model:
    """A model whose `saved_model.pb` holds one word that says how loading goes."""

    closed = []
    alive = weakref.WeakSet()

    def __init__(self, path):
        Model.alive.add(self)
        self.number = path.name
        content = (path / "saved_model.pb").read_text()
        if content == "hangs":
            HANGING.wait(30)
        elif content == "closed":
            raise PermissionError(13, "Permission denied", f"{path}/saved_model.pb")
        elif content == "foreign":
            raise InputError("Expected the library x. Install it.")
        elif content != "good":
            raise tf.errors.DataLossError(None, None, f"{path}/variables: {content}")
        self.signatures = {"serving_default": Slow(self)}

    def warm_up_others(self):
        if self.number == "8":
            HANGING.wait(30)
        if self.number == "9":
            raise tf.errors.InternalError(None, None, "no such word")

    def close(self):
        Model.closed.append(self.number)


class Slow:
    """A signature whose runs wait until they may end."""

    name = "serving_default"
    is_batchable = True
    may_end = threading.Event()
    begun = threading.Event()

    def __init__(self, model):
        self._model = model
        self.inputs = {"text": types.SimpleNamespace(dtype=tf.string, shape=(None,))}
        self.outputs = {"translation": None}

    def __call__(self, inputs, timeout=None):
        Slow.begun.set()
        assert Slow.may_end.wait(30)
        assert self._model.number not in Model.closed, "it is closed while it answers"
        return {"translation": inputs["text"]}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(versions_module, "LoadedModel", Model)
    monkeypatch.setattr(versions_module, "_tidy_memory", lambda: None)
    monkeypatch.setattr(versions_module, "RETRY_SECONDS", 0.05)
    for event in (HANGING, Slow.may_end, Slow.begun):
        event.clear()
    Model.closed = []
    Model.alive.clear()
    yield
    HANGING.set()
    Slow.may_end.set()
    for thread in threading.enumerate():
        if thread.name == "loading":
            thread.join()


def add(directory, name, content="good"):
    path = directory / name
    path.mkdir()
    (path / "saved_model.pb").write_text(content)


def serve(directory, test, wanted=LATEST):
    """Calls `await test(versions, metrics, settings)` while a directory's versions are served."""

    async def main():
        settings = ServingConfig(poll_seconds=0.02, load_timeout=LOAD_SECONDS, batch_threads=1)
        metrics = Metrics("m")
        versions = Versions(directory, "m", wanted, {}, settings, metrics)
        await versions.start()
        try:
            await test(versions, metrics, settings)
        finally:
            Slow.may_end.set()
            await versions.close()

    asyncio.run(main())


async def until(is_true):
    async def look():
        while not is_true():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 20)


def page(metrics):
    return metrics.page().decode()


def states(versions):
    return {number: version.state for number, version in versions.all.items()}


def test_a_version_that_hangs_is_given_up_and_later_ones_are_loaded(tmp_path, caplog):
    add(tmp_path, "1")

    async def test(versions, metrics, _):
        add(tmp_path, "2", "hangs")
        await until(lambda: states(versions) == {1: "AVAILABLE", 2: "END"})
        error = versions.all[2].error
        assert error.code == grpc.StatusCode.DEADLINE_EXCEEDED
        assert f"within {LOAD_SECONDS:g} seconds. Loading was given up." in str(error)
        assert (
            'load_count{model_name="m",status="DEADLINE_EXCEEDED"} 1.0' in metrics.page().decode()
        )
        add(tmp_path, "3")
        await until(lambda: states(versions) == {1: "END", 2: "END", 3: "AVAILABLE"})
        # loading ends after all: the model is closed, and another attempt is allowed
        HANGING.set()
        await until(lambda: "2" in Model.closed)
        await versions.change({2, 3}, {})
        await until(lambda: states(versions) == {1: "END", 2: "AVAILABLE", 3: "AVAILABLE"})

    serve(tmp_path, test)
    assert "warning: version 2 cannot be served: Expected the version to load" in caplog.text


def test_models_that_have_ended_or_failed_leave_the_memory(tmp_path):
    gc.freeze()  # looks at no object of other tests
    add(tmp_path, "1")

    async def test(versions, *_):
        for number, content in enumerate(["good", "broken", "hangs", "good"], 2):
            add(tmp_path, str(number), content)
            state = "AVAILABLE" if content == "good" else "END"
            await until(lambda n=number, s=state: states(versions).get(n) == s)
        HANGING.set()  # version 4 is loaded after its time, and closed
        await until(lambda: {"1", "2", "4"} <= set(Model.closed))
        await until(lambda: states(versions)[2] == "END")
        gc.collect()
        assert {model.number for model in Model.alive} == {"5"}

    serve(tmp_path, test)
    gc.unfreeze()


def test_a_version_that_must_not_be_read_is_reported_and_later_ones_are_served(
    tmp_path, monkeypatch, caplog
):
    add(tmp_path, "1")
    refused, stat = f"{tmp_path}/2/", os.stat

    def refusing(path, *args, **kwargs):
        if str(path).startswith(refused):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refusing)

    async def test(versions, *_):
        add(tmp_path, "2", "closed")
        await until(lambda: states(versions) == {1: "AVAILABLE", 2: "END"})
        add(tmp_path, "3")
        await until(lambda: states(versions) == {1: "END", 2: "END", 3: "AVAILABLE"})

    serve(tmp_path, test)
    message = (
        "2 cannot be served: Expected files that this process may read. Received: .*Permission"
    )
    assert re.search(message, caplog.text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("broken", "variables: broken. Export it again."),
        ("foreign", ": Expected the library x. Install it."),
        ("closed", "saved_model.pb: Permission denied. Change their owner or mode."),
    ],
)
def test_a_server_that_does_not_start_names_one_remedy(content, message, tmp_path):
    add(tmp_path, "1", content)
    with pytest.raises(InputError, match="Expected an export that can be served") as raised:
        serve(tmp_path, None)
    assert str(raised.value).endswith(message)


@pytest.mark.parametrize(("name", "remedy"), [("1", "Serve {0}."), ("m", "Move it to {0}/m/1.")])
def test_a_single_version_is_not_taken_for_a_broken_export(tmp_path, name, remedy):
    add(tmp_path, name)
    with pytest.raises(InputError) as raised:
        serve(tmp_path / name, None)
    message = f"Received: {tmp_path}/{name}, one version. {remedy.format(tmp_path)}"
    assert str(raised.value).endswith(message)


def test_a_directory_that_must_not_be_read_is_said_to_be_so(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(PermissionError, match=str(tmp_path)):
        serve(tmp_path, None)


def test_a_refused_change_leaves_all_as_it_was(tmp_path):
    add(tmp_path, "1")
    add(tmp_path, "2")

    async def test(versions, *_):
        async def is_refused(*change):
            with pytest.raises(ServingError) as raised:
                await versions.change(*change)
            assert states(versions)[2] == "AVAILABLE" and versions.labels == labels
            with versions.using("m") as version:
                assert version.number == 2
            return str(raised.value)

        labels = {}
        for change, message in (
            (({1, 7}, {}), "Received: 7. "),
            (({1}, {"stable": 9}), "assign label to version 9"),
        ):
            assert message in await is_refused(*change)
            # 1 was loaded for it, and is not loaded again before it has been unloaded
            await until(lambda: states(versions) == {1: "END", 2: "AVAILABLE"})
        # a refused change and another at the same time
        refused, _ = await asyncio.gather(
            versions.change({9}, {}), versions.change({1}, {"old": 1}), return_exceptions=True
        )
        assert "Received: 9. " in str(refused)
        await until(lambda: states(versions) == {1: "AVAILABLE", 2: "END"})
        await asyncio.sleep(0.1)
        assert states(versions)[1] == "AVAILABLE" and versions.labels == {"old": 1}
        labels = {"old": 1}
        await versions.change({2}, labels)
        await is_refused({1}, {"old": 3})

    serve(tmp_path, test)


def test_a_label_of_a_version_that_cannot_be_loaded_is_refused(tmp_path):
    add(tmp_path, "1")
    add(tmp_path, "2", "broken")

    async def test(versions, *_):
        with pytest.raises(ServingError, match="assign label to version 2"):
            await versions.change({1}, {"new": 2})
        assert 2 in versions.all and versions.labels == {}

    serve(tmp_path, test, wanted={1})


def test_a_version_that_a_refused_change_has_loaded_does_not_answer(tmp_path):
    add(tmp_path, "1")
    add(tmp_path, "2")

    async def test(versions, *_):
        versions._polling.cancel()
        with pytest.raises(ServingError, match="Received: 7. "):
            await versions.change({2, 7}, {})
        with versions.using("m") as version:
            assert version.number == 1
        await until(lambda: states(versions) == {1: "AVAILABLE", 2: "END"})

    serve(tmp_path, test, wanted={1})


def test_a_disk_that_fails_for_a_moment_changes_nothing(tmp_path, monkeypatch):
    for name in ("1", "2"):
        add(tmp_path, name)
    stat, looks = os.stat, []

    def failing(path, *args, **kwargs):
        if str(path).startswith(f"{tmp_path}/2/"):
            looks.append(path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return stat(path, *args, **kwargs)

    async def test(versions, *_):
        monkeypatch.setattr(os, "stat", failing)
        await until(lambda: len(looks) > 3)
        assert states(versions) == {2: "AVAILABLE"}

    serve(tmp_path, test)


def test_a_directory_that_hangs_does_not_stop_the_answers(tmp_path, monkeypatch):
    add(tmp_path, "1")

    async def test(versions, *_):
        found, looks = versions_module.versions_in, []

        def hangs(path):
            looks.append("begun")
            HANGING.wait(30)
            looks.append("ended")
            return found(path)

        monkeypatch.setattr(versions_module, "versions_in", hangs)
        await until(lambda: looks)
        await asyncio.sleep(0.1)  # several times the pause between two looks
        assert looks == ["begun"]
        with versions.using("m") as version:
            assert version.number == 1
        add(tmp_path, "2")
        HANGING.set()
        await until(lambda: states(versions) == {1: "END", 2: "AVAILABLE"})

    serve(tmp_path, test)


def test_a_version_serves_while_its_other_signatures_warm_up(tmp_path, caplog):
    add(tmp_path, "8")

    async def test(versions, metrics, _):
        assert states(versions) == {8: "AVAILABLE"}
        add(tmp_path, "9")  # whose warm-up fails
        await until(lambda: states(versions) == {8: "END", 9: "AVAILABLE"})
        await until(lambda: "warning: version 9" in caplog.text)

    serve(tmp_path, test)


def test_a_version_that_hangs_is_not_tried_again_meanwhile(tmp_path):
    add(tmp_path, "1")

    async def test(versions, metrics, _):
        add(tmp_path, "2", "hangs")
        await until(lambda: states(versions).get(2) == "END")
        await asyncio.sleep(0.3)  # longer than several polls and the pause before a retry
        assert [t.name for t in threading.enumerate()].count("loading") == 1
        assert 'status="DEADLINE_EXCEEDED"} 1.0' in page(metrics)

    serve(tmp_path, test)


def test_a_version_that_was_broken_is_tried_at_once_when_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(versions_module, "RETRY_SECONDS", 600)
    add(tmp_path, "1")

    async def test(versions, *_):
        add(tmp_path, "2", "broken")
        await until(lambda: states(versions).get(2) == "END")
        (tmp_path / "2" / "saved_model.pb").write_text("good")
        await versions.change({2}, {})
        assert states(versions)[2] == "AVAILABLE"

    serve(tmp_path, test)


def test_a_server_whose_only_version_hangs_does_not_start(tmp_path):
    add(tmp_path, "1", "hangs")

    async def test(*_):
        raise AssertionError("it has started")

    with pytest.raises(ValueError, match="Expected an export that can be served. .* given up"):
        serve(tmp_path, test)


def test_broken_half_copied_and_removed_versions_in_a_row(tmp_path, caplog):
    add(tmp_path, "1")

    async def test(versions, metrics, _):
        add(tmp_path, "2", "broken")
        await until(lambda: states(versions) == {1: "AVAILABLE", 2: "END"})
        add(tmp_path, "3", "half")
        await until(lambda: states(versions).get(3) == "END")
        add(tmp_path, "4")
        await until(lambda: states(versions).get(4) == "AVAILABLE")
        (tmp_path / "4" / "saved_model.pb").unlink()  # removed, so 3 is the newest again
        (tmp_path / "4").rmdir()
        await asyncio.sleep(0.1)
        assert states(versions)[4] == "AVAILABLE"  # 3 is still incomplete: 4 stays
        (tmp_path / "3" / "saved_model.pb").write_text("good")  # now complete
        await until(lambda: states(versions) == {1: "END", 2: "END", 3: "AVAILABLE", 4: "END"})
        add(tmp_path, "4")  # 4 is back
        await until(lambda: states(versions)[3] == "END" and states(versions)[4] == "AVAILABLE")
        assert Model.closed == ["1", "4", "3"]
        message = str(versions.all[2].error)
        assert "broken" in message and str(tmp_path) not in message  # clients see it

    serve(tmp_path, test)
    assert "Traceback" not in caplog.text


def test_directories_of_odd_names_are_left_alone(tmp_path):
    odd = ["one", "1.5", "-1", "+1", "1e3", "2 ", " 2", "2\n", "٣", "0x2", "9" * 20, ".2", "2~", ""]
    for name in filter(None, odd):
        add(tmp_path, name)
    add(tmp_path, os.fsdecode(b"2\xff"))  # not UTF-8
    (tmp_path / "5").write_text("a file")
    (tmp_path / "6").mkdir()
    (tmp_path / "7").symlink_to(tmp_path / "7")  # to itself
    (tmp_path / "8").symlink_to(tmp_path / "nowhere")
    add(tmp_path, "004")
    add(tmp_path, "1")
    add(tmp_path, "0001", "broken")  # also number 1, but not its usual name

    async def test(versions, *_):
        assert states(versions) == {1: "AVAILABLE", 4: "AVAILABLE"}
        await asyncio.sleep(0.1)
        assert states(versions) == {1: "AVAILABLE", 4: "AVAILABLE"}

    serve(tmp_path, test, wanted=ALL)


def test_without_a_version_the_newest_of_two_available_ones_answers(tmp_path):
    for name in ("10", "9"):
        add(tmp_path, name)

    async def test(versions, *_):
        assert states(versions) == {9: "AVAILABLE", 10: "AVAILABLE"}
        with versions.using("m") as version:
            assert version.number == 10
        with versions.using("m", 9) as version:
            assert version.number == 9

    serve(tmp_path, test, wanted=ALL)


def test_a_version_goes_when_its_slow_request_has_been_answered(tmp_path):
    add(tmp_path, "1")

    async def test(versions, metrics, settings):
        batching = Batching(settings, metrics)
        service = PredictionService(versions, batching, settings, OneThread())
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["A dog runs."]))
        answering = asyncio.create_task(service.Predict(request))
        await until(Slow.begun.is_set)
        add(tmp_path, "2")
        await until(lambda: states(versions) == {1: "UNLOADING", 2: "AVAILABLE"})
        await asyncio.sleep(0.2)  # several checks whether it is in use
        assert states(versions)[1] == "UNLOADING" and not Model.closed
        with pytest.raises(ServingError), versions.using("m", 1):
            pass  # it takes no new requests
        Slow.may_end.set()
        response = await answering
        assert response.outputs["translation"].string_val == [b"A dog runs."]
        assert response.model_spec.version.value == 1
        await until(lambda: states(versions) == {1: "END", 2: "AVAILABLE"})
        assert Model.closed == ["1"]
        await batching.close()

    serve(tmp_path, test)


def test_health_follows_the_versions_and_the_end(tmp_path):
    add(tmp_path, "1")
    status = health_pb2.HealthCheckResponse

    async def test(versions, metrics, settings):
        health = Health(versions, Calls(settings, metrics, None))
        assert [health.status(n) for n in ("", "m", "x")] == [
            status.SERVING,
            status.SERVING,
            status.SERVICE_UNKNOWN,
        ]
        versions.all[1].state = "UNLOADING"
        assert health.status("") == health.status("m") == status.NOT_SERVING
        versions.all[1].state = "AVAILABLE"
        assert health.status("m") == status.SERVING
        health.stop()
        assert health.status("") == health.status("m") == status.NOT_SERVING

    serve(tmp_path, test)
