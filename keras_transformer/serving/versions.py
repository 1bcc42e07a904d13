"""Which versions of a model are served: found in a directory, loaded, swapped, named by labels.

A new version is loaded while the old one serves, and the old one goes when it has answered what it
was asked. All but loading and closing happens in one event loop, so nothing here needs a lock.
"""

import asyncio
import concurrent.futures
import contextlib
import gc
import threading

import grpc

from keras_transformer import console
from keras_transformer.export.settings import check_export
from keras_transformer.serving.errors import (
    ServingError,
    damaged,
    from_tensorflow,
    invalid,
    not_loaded,
)
from keras_transformer.serving.loaded_model import LoadedModel

LATEST = "latest"
ALL = "all"
LARGEST_VERSION = 2**63 - 1  # what the messages of both interfaces can hold
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 10, 600
"""Until a version that failed is loaded again, as it may have been copied half; then twice that."""


class Version:
    """One version of the model, from its loading to its end.

    Attributes:
        number: int.
        state: "LOADING", "AVAILABLE", "UNLOADING" or "END".
        error: `ServingError` that ended it, or None.
        model: `LoadedModel` while it is available or unloading, else None.
        loading: `concurrent.futures.Future` of the thread that loads it, or None.
    """

    def __init__(self, number):
        self.number = number
        self.state = "LOADING"
        self.error = None
        self.model = None
        self.loading = None
        self.retry_at = None
        self.retry_seconds = RETRY_SECONDS
        self.num_users = 0


class Versions:
    """The versions of one model; made and used in one event loop.

    Args:
        directory: `pathlib.Path` with a directory `<number>/` for each version.
        model_name: str.
        wanted: `LATEST`, `ALL` or a set of numbers.
        labels: dict from label to number; labelled versions are served too.
        settings: `ServingConfig`.
        metrics: `Metrics`.
    """

    def __init__(self, directory, model_name, wanted, labels, settings, metrics):
        self.model_name = model_name
        self.all = {}  # number to `Version`
        self.labels = {}
        self._first_labels = labels
        self._wanted = wanted
        self._directory = directory
        self._settings = settings
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._refreshing = asyncio.Lock()
        self._unloading = set()
        self._polling = None

    async def start(self):
        """Loads what is wanted, and goes on looking for new versions.

        Raises:
            ValueError: there is no version that can be served, or a label's is missing.
        """
        numbers = self._found()
        missing = {**{str(n): n for n in self._numbers_wanted(numbers)}, **self._first_labels}
        missing = {name: number for name, number in missing.items() if number not in numbers}
        if missing or not numbers:
            name, number = next(iter(missing.items()), ("", "<number>"))
            label = f" for the label {name}" if name in self._first_labels else ""
            raise ValueError(
                f"Expected an export in {self._directory}/{number}{label}. "
                f"Received: {self._directory}, with "
                f"{'the versions ' + ', '.join(map(str, sorted(numbers))) if numbers else 'none'}. "
                "Write one there by `keras-transformer export RUN DIR`."
            )
        self.labels = dict(self._first_labels)
        await self.refresh()
        for version in self.all.values():
            if version.error is not None:
                raise ValueError(
                    f"Expected an export that can be served. Received: {self._directory}/"
                    f"{version.number}: {version.error} Export it again."
                )
        self._polling = asyncio.create_task(self._poll())

    async def close(self):
        """Ends all versions when they have answered what they were asked."""
        if self._polling is not None:
            self._polling.cancel()
        for version in self.all.values():
            if version.state == "AVAILABLE":
                self._unload(version)
        await asyncio.gather(*self._unloading)

    @property
    def is_ready(self):
        """Whether a version can answer."""
        return bool(self._available())

    @contextlib.contextmanager
    def using(self, model_name, number=None, label=None):
        """Gives the `Version` that a request is for, which stays until the request is answered.

        Args:
            model_name: str.
            number: int, or None: the highest that is available.
            label: str, or None.
        Raises:
            ServingError: there is none.
        """
        version = self._version(model_name, number, label)
        version.num_users += 1
        try:
            yield version
        finally:
            version.num_users -= 1

    def _version(self, model_name, number, label):
        if label is not None and model_name == self.model_name:
            if label not in self.labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            number = self.labels[label]
        available = [v for v in self.all.values() if v.state == "AVAILABLE"]
        if number is not None:
            available = [version for version in available if version.number == number]
        if model_name != self.model_name or not available:
            which = (
                f"Latest({model_name})" if number is None else f"Specific({model_name}, {number})"
            )
            raise ServingError(
                grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {which}"
            )
        return max(available, key=lambda version: version.number)

    def status(self, model_name, number=None):
        """Returns the list of `Version`s that a question for the status is about.

        Raises:
            ServingError: there are none.
        """
        versions = [self.all[n] for n in sorted(self.all)] if model_name == self.model_name else []
        if number is not None:
            versions = [version for version in versions if version.number == number]
        if not versions:
            what = "any versions" if number is None else f"version {number}"
            raise ServingError(
                grpc.StatusCode.NOT_FOUND, f"Could not find {what} of model {model_name}"
            )
        return versions

    async def change(self, wanted, labels):
        """Serves other versions, and moves the labels.

        Raises:
            ServingError: a version, or one that a label names, is not available. The versions and
                the labels stay.
        """
        # the caller may give up: what has begun to load is loaded all the same
        await asyncio.shield(asyncio.create_task(self._change(wanted, labels)))

    async def _change(self, wanted, labels):
        before, self._wanted = self._wanted, wanted
        for version in self.all.values():
            if version.retry_at is not None:  # whoever asks for a version wants it tried now
                version.retry_at = 0.0
        await self.refresh(keep_labelled=labels.values())
        if isinstance(wanted, set) and not wanted <= self._available():
            self._wanted = before
            missing = ", ".join(map(str, sorted(wanted - self._available())))
            raise ServingError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Expected versions of model {self.model_name} that can be served. "
                f"Received: {missing}. What was served before is served on.",
            )
        for number in labels.values():
            if number not in self.all or self.all[number].state != "AVAILABLE":
                raise ServingError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {number} of model {self.model_name}, "
                    "which is not currently available for inference",
                )
        self.labels = dict(labels)
        await self.refresh()

    async def refresh(self, keep_labelled=()):
        """Loads the versions that are wanted and new; then lets go those that are not wanted."""
        async with self._refreshing:
            found = self._found()
            there = set(found) | self._available()
            by_policy = self._numbers_wanted(found) & there
            wanted = by_policy | ((set(self.labels.values()) | set(keep_labelled)) & there)
            for number in sorted(wanted):
                if self._is_due(number):
                    await self._load(number, found.get(number, self._directory / str(number)))
            available = self._available()
            if by_policy and by_policy <= available:  # else the old one serves on
                for number in available - wanted:
                    self._unload(self.all[number])

    async def _poll(self):
        while True:
            await asyncio.sleep(self._settings.poll_seconds)
            try:
                await self.refresh()
            except Exception as error:  # what is served is served on
                _say(f"warning: no look for versions: {type(error).__name__}: {error}")

    def _found(self):
        """Returns the versions in the directory, number to path; none where it cannot be read."""
        with contextlib.suppress(OSError):
            paths = [path.parent for path in self._directory.glob("*/saved_model.pb")]
            paths.sort(key=lambda path: len(path.name), reverse=True)  # of 1 and 001, 1 counts
            numbers = {path: version_number(path.name) for path in paths}
            return {number: path for path, number in numbers.items() if number is not None}
        return {}

    def _available(self):
        """Returns the numbers of the versions that answer requests."""
        return {v.number for v in self.all.values() if v.state == "AVAILABLE"}

    def _numbers_wanted(self, found):
        if self._wanted == LATEST:
            # what is gone from the directory is served until there is another
            numbers = found or self._available()
            return {max(numbers)} if numbers else set()
        return set(found) if self._wanted == ALL else set(self._wanted)

    def _is_due(self, number):
        version = self.all.get(number)
        if version is None or (version.state == "END" and version.error is None):
            return True
        if version.loading is not None and not version.loading.done():
            return False  # it was given up and hangs; another try would hang too
        return version.retry_at is not None and self._loop.time() > version.retry_at

    async def _load(self, number, path):
        before = self.all.get(number)
        version = self.all[number] = Version(number)
        if before is not None and before.retry_at is not None:
            version.retry_seconds = min(2 * before.retry_seconds, LONGEST_RETRY_SECONDS)
        _say(f"loading version {number}")
        version.loading = _in_own_thread(_load_model, path)
        seconds = self._settings.load_timeout
        try:
            loading = asyncio.wrap_future(version.loading)
            version.model = await asyncio.wait_for(loading, seconds)
        except asyncio.TimeoutError:
            version.loading.add_done_callback(_close_late)
            self._fail(version, not_loaded(seconds))
        except Exception as error:
            self._fail(version, from_tensorflow(error))
        else:
            version.state = "AVAILABLE"
            self._metrics.count_load("OK")
            _say(f"serving version {number}")

    def _fail(self, version, error):
        version.state, version.error = "END", error
        version.retry_at = self._loop.time() + version.retry_seconds
        self._metrics.count_load(error.code.name)
        _say(f"warning: version {version.number} cannot be served: {error}")

    def _unload(self, version):
        version.state = "UNLOADING"
        task = asyncio.create_task(self._end(version))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _end(self, version):
        while version.num_users:
            await asyncio.sleep(0.05)
        model, version.model = version.model, None
        await asyncio.to_thread(model.close)  # not behind another that is loaded
        del model
        await asyncio.to_thread(_tidy_memory)
        version.state = "END"
        _say(f"ended version {version.number}")


def version_number(text):
    """Returns the number that a text is of a version, or None."""
    digits = text.lstrip("0") or "0"
    is_number = text.isascii() and text.isdecimal() and len(digits) <= len(str(LARGEST_VERSION))
    return int(digits) if is_number and int(digits) <= LARGEST_VERSION else None


def _in_own_thread(function, *arguments):
    """Returns the `concurrent.futures.Future` of a call.

    Its thread holds up neither another call nor the end of the process, as one of a pool would.
    """
    future = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # who waits may give up; the call goes on

    def call():
        try:
            result = function(*arguments)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=call, name="loading", daemon=True).start()
    return future


def _load_model(path):
    try:
        check_export(path)
    except ValueError as error:  # weights with flipped bits load, and translate to nonsense
        raise damaged(error) from None
    model = LoadedModel(path)
    _tidy_memory()
    return model


def _close_late(loading):
    """Closes a model that was loaded after it had been given up."""
    if loading.exception() is None:
        loading.result().close()


def _say(text):
    """Prints a line; a standard error that nobody reads any more ends no service."""
    with contextlib.suppress(OSError):
        console.say(text)


def _tidy_memory():
    """Frees what is left of graphs, and keeps Python from looking through the others again.

    A graph holds itself, so only the garbage collector frees it; and its many objects would make
    each collection, in the midst of a request, take tenths of a second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
