"""`keras-transformer serve`: what it refuses; the server is tested in tests/serving."""

import signal
import sys
import types

import pytest

from keras_transformer import cli
from keras_transformer.cli import console
from keras_transformer.serving import LOG


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label", "stable"], "Received: --label stable. Write it as stable=2."),
        (["--label", "=2"], "Expected a label and a version"),
        (["--label", f"stable={5000 * '9'}"], "Expected a label and a version"),
        (["--max-batch-size", "0"], "Expected max_batch_size to be a whole number from 1"),
        (["--request-timeout", "nan"], "Expected request_timeout to be a number above 0"),
        (["--max-rows", "1000"], "Received: max_rows=1000, max_queued=512"),
        ([], "no such directory"),
    ],
)
def test_serve_refuses_bad_flags_before_anything_is_loaded(flags, message, error_of):
    assert message in error_of(2, ["serve", "no_directory", *flags])


@pytest.mark.parametrize("versions", ["newest", "1,", "-1"])
def test_serve_knows_versions_by_numbers(capsys, versions):
    with pytest.raises(SystemExit) as exit:
        cli.main(["serve", "no_directory", f"--versions={versions}"])
    assert exit.value.code == 2
    assert "expected latest, all, or versions such as 1,2" in capsys.readouterr().err


def test_serve_says_which_libraries_it_wants(tmp_path, monkeypatch, error_of):
    monkeypatch.setitem(sys.modules, "h11", None)
    for name in [name for name in sys.modules if name.startswith("keras_transformer.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    error = error_of(2, ["serve", str(tmp_path)])
    assert "h11" in error and 'in the clone of this package: pip install ".[serving]"' in error
    assert "keras-transformer[" not in error  # which another project has on the package index


@pytest.mark.parametrize(
    ("signals", "obeyed"),
    [
        ({"start": SystemExit(143)}, 143),  # while the first version is loading
        ({"wait": KeyboardInterrupt()}, 130),
        ({"wait": SystemExit(143), "stop": KeyboardInterrupt()}, 130),  # the second one is obeyed
    ],
)
def test_a_signal_stops_the_server_and_ends_the_process(
    calls, tmp_path, monkeypatch, signals, obeyed
):
    class FakeServer:
        host, port, grpc_port, model_name = "127.0.0.1", 1, 2, "m"

        def __init__(self, *arguments, **options):
            self.called = []
            servers.append(self)

        def _call(self, name):
            self.called.append(name)
            if name in signals:
                raise signals[name]

        def start(self):
            self._call("start")

        def wait(self):
            self._call("wait")

        def stop(self):
            self._call("stop")

    def end(signalled):
        is_interrupt = isinstance(signalled, KeyboardInterrupt)
        ended.append(128 + signal.SIGINT if is_interrupt else signalled.code)

    servers, ended = [], []
    server = types.SimpleNamespace(Server=FakeServer)
    monkeypatch.setitem(sys.modules, "keras_transformer.serving.server", server)
    monkeypatch.setattr(console, "end_at_once", end)
    monkeypatch.setattr(LOG, "handlers", [])
    assert cli.main(["serve", str(tmp_path)]) == 0
    assert ended == [obeyed]
    expected = ["start", "stop"] if "start" in signals else ["start", "wait", "stop"]
    assert servers[0].called == expected
