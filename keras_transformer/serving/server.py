"""The embedded server: REST and gRPC in one event loop, in a thread of its own."""

import asyncio
import contextlib
import pathlib
import socket
import threading

from keras_transformer.serving.batching import Batching
from keras_transformer.serving.descriptors import fit_connections
from keras_transformer.serving.grpc_server import GrpcServer
from keras_transformer.serving.http_server import HttpServer
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.predicting import Predicting
from keras_transformer.serving.rest import RestInterface
from keras_transformer.serving.settings import ServingConfig
from keras_transformer.serving.versions import LATEST, Versions


class Server:
    """Serves the exports in a directory as TensorFlow Serving would.

    Args:
        directory: path of `<version>/` directories, as `export_saved_model` writes them.
        model_name: str; None: the directory's own name.
        host: address to listen at; the default is seen on this machine alone.
        port, grpc_port: int; 0: any free one.
        versions: "latest", "all", or a set of numbers.
        labels: dict from label to version, each of which is served too.
        settings: `ServingConfig`; None is the default one.

    XLA is disabled in the whole process, as in TensorFlow Serving's, and what Python has in memory
    is left out of its garbage collection from then on: a process of its own serves best.

    Attributes:
        model_name, port, grpc_port: what they have become.

    Example:
        with Server("export/models/translator", port=0, grpc_port=0) as server:
            requests.post(f"http://127.0.0.1:{server.port}/v1/models/translator:predict", ...)
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
    ):
        self.directory = pathlib.Path(directory)
        self.model_name = model_name or self.directory.resolve().name
        self.host = host
        self.port = port
        self.grpc_port = grpc_port
        self._wanted = versions
        self._labels = labels or {}
        self._settings = settings or ServingConfig()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._started = threading.Event()
        self._ended = threading.Event()  # Python 3.11's join is over once a signal has come
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
        """Loads the model and begins to answer.

        Raises:
            ValueError: no export that can be served, or a port that is taken.
        """
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._ended.wait()
            raise self._error

    def wait(self):
        """Returns when the server has ended; raises what ended it."""
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def stop(self):
        """Refuses new requests, answers those that were accepted, and ends.

        A version that is just being loaded goes on to be, in a thread that nobody waits for.
        """
        self._is_stopped = True
        if self._loop is not None:  # else it looks when it begins
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._ended.wait()

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
        settings = self._settings = fit_connections(self._settings)
        metrics = Metrics(self.model_name)
        batching = Batching(settings, metrics)
        metrics.watch_queue(lambda: batching.num_waiting)
        versions = Versions(
            self.directory, self.model_name, self._wanted, self._labels, settings, metrics
        )
        predicting = Predicting(versions, batching, settings)
        with _bound(self.host, self.port, "--port") as listener:
            self.port = listener.getsockname()[1]
            grpc_server = self._grpc_server(predicting, metrics)
            rest = RestInterface(predicting, settings, metrics)
            http_server = HttpServer(listener, rest, settings)
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                starting = asyncio.create_task(versions.start())
                await asyncio.wait([stopping, starting], return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    return
                starting.result()
                await grpc_server.start()
                http_server.start()
                self._started.set()
                await stopping
                grace = settings.grace_seconds
                await asyncio.gather(grpc_server.stop(grace), http_server.stop(grace))
            except OSError as error:  # another server has begun to listen meanwhile
                raise _not_free(self.host, self.port, "--port", error) from None
            finally:
                await grpc_server.stop(None)
                await batching.close()
                rest.close()
                await versions.close()

    def _grpc_server(self, predicting, metrics):
        server = GrpcServer(predicting, self._settings, metrics)
        try:
            self.grpc_port = server.bind(self.host, self.grpc_port)
        except RuntimeError:
            raise _not_free(self.host, self.grpc_port, "--grpc-port", "it cannot be used") from None
        return server


@contextlib.contextmanager
def _bound(host, port, flag):
    """Gives a socket that has the port, and does not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol unnamed, asyncio leaves Nagle's algorithm on: 40 ms an answer
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
        except (OSError, OverflowError) as error:
            raise _not_free(host, port, flag, error) from None
        yield bound


def _not_free(host, port, flag, reason):
    return ValueError(
        f"Expected an address and a port to listen at. Received: --host {host} {flag} {port}: "
        f"{reason}. Choose a free port, or stop what has it."
    )
