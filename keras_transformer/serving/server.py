"""The embedded server: REST and gRPC in one event loop, which has its own thread."""

import asyncio
import contextlib
import pathlib
import socket
import threading

from keras_transformer.errors import InputError
from keras_transformer.serving.batching import Batching
from keras_transformer.serving.grpc_server import GrpcServer
from keras_transformer.serving.http_server import HttpServer, fit_connections
from keras_transformer.serving.memory import OneThread
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.page import Page
from keras_transformer.serving.rest import RestInterface
from keras_transformer.serving.settings import ServingConfig
from keras_transformer.serving.versions import LATEST, Versions


class Server:
    """Serves the exports in a directory as TensorFlow Serving would.

    The server disables XLA in the whole process, as TensorFlow Serving does, and excludes all
    existing Python objects from garbage collection. It therefore works best in its own process.

    Args:
        directory: path that contains `<version>/` directories, as `export_saved_model` writes them.
        model_name: str. None means the name of the directory.
        host: address to listen on. The default is reachable from this machine only.
        port, grpc_port: int; 0 means any free port.
        versions: "latest", "all", or a set of numbers.
        labels: dict from label to version. These versions are served in addition to `versions`.
        settings: `ServingConfig`; None means the defaults.
        has_page: whether a page for browsers is at `/`.

    Attributes:
        model_name, port, grpc_port: the values in use, with ports that the system has chosen.

    Example:
        with Server("export/models/translator", port=0, grpc_port=0) as server:
            print(f"http://{server.host}:{server.port}/v1/models/{server.model_name}:predict")
    """

    def __init__(
        self,
        directory,
        model_name=None,
        host="127.0.0.1",
        port=8501,
        grpc_port=8500,
        versions=LATEST,
        labels=None,
        settings=None,
        has_page=True,
    ):
        self.directory = pathlib.Path(directory)
        self.model_name = model_name or self.directory.resolve().name
        self.host = host
        self.port = port
        self.grpc_port = grpc_port
        self._wanted = versions
        self._labels = labels or {}
        self._settings = settings or ServingConfig()
        self._has_page = has_page
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._started = threading.Event()
        self._ended = threading.Event()  # Thread.join returns early after a signal in Python 3.11
        self._error = None
        self._stopping = None
        self._loop = None
        self._is_stopped = False

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Loads the model and starts to answer.

        Raises:
            InputError: there is no export that can be served, or a port is taken.
            OSError: the directory cannot be read.
        """
        self._thread.start()
        _wait_for(self._started)
        if self._error is not None:
            _wait_for(self._ended)
            raise self._error

    def wait(self):
        """Waits until the server has ended; raises the exception that ended it, if any."""
        _wait_for(self._ended)
        if self._error is not None:
            raise self._error

    def stop(self):
        """Refuses new requests, answers the accepted ones, and ends.

        A version that is being loaded goes on loading in its thread, and nobody waits for it.
        """
        self._is_stopped = True
        if self._loop is not None:  # else _serve looks at _is_stopped when it begins
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._stopping.set)
        _wait_for(self._ended)

    def _run(self):
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
            self._ended.set()

    async def _serve(self):
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_stopped:
            self._stopping.set()
        settings = fit_connections(self._settings)
        metrics = Metrics(self.model_name)
        batching = Batching(settings, metrics)
        one_thread = OneThread()
        versions = Versions(
            self.directory, self.model_name, self._wanted, self._labels, settings, metrics
        )
        with _bound(self.host, self.port, "--port") as listener:
            self.port = listener.getsockname()[1]
            grpc_server = GrpcServer(versions, batching, settings, metrics, one_thread)
            try:
                self.grpc_port = grpc_server.bind(self.host, self.grpc_port)
            except RuntimeError:
                reason = "it cannot be used"
                raise _not_free(self.host, self.grpc_port, "--grpc-port", reason) from None
            page = Page(versions) if self._has_page else None
            rest = RestInterface(versions, batching, settings, metrics, one_thread, page)
            http_server = HttpServer(listener, rest, settings)
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                starting = asyncio.create_task(versions.start())
                await asyncio.wait([stopping, starting], return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    return
                starting.result()
                await grpc_server.start()
                try:
                    await http_server.start()
                except OSError as error:  # meanwhile another server listens on the port
                    raise _not_free(self.host, self.port, "--port", error) from None
                self._started.set()
                # an answer is read for as long as it may be written
                await one_thread.give_back_until(stopping, 2 * settings.request_timeout)
                grace = settings.grace_seconds
                await asyncio.gather(grpc_server.stop(grace), http_server.stop(grace))
            finally:
                await grpc_server.stop(None)
                await batching.close()
                one_thread.close()
                await versions.close()


def _wait_for(event):
    """Waits for a `threading.Event`, and obeys a signal within a second.

    Python does not notice a signal that arrives just before the main thread begins to wait, or that
    the system gives to another thread, until the wait is over.
    """
    while not event.wait(0.5):
        pass


@contextlib.contextmanager
def _bound(host, port, flag):
    """Yields a socket that is bound to the port, and does not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # unless the protocol is named, asyncio leaves Nagle's algorithm on: 40 ms per answer
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except (OSError, OverflowError) as error:
            raise _not_free(host, port, flag, error) from None
        yield bound


def _not_free(host, port, flag, reason):
    return InputError(
        f"Expected an address and a port to listen on. Received: --host {host} {flag} {port}: "
        f"{reason}. Choose a free port, or stop the program that uses it."
    )
