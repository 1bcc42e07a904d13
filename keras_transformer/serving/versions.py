"""The versions of a model: found in a directory, loaded and unloaded, and named by labels.

A new version is loaded while the old one serves. The old one is unloaded when it has answered its
open requests. Everything but loading and closing happens in one event loop, so nothing here needs a
lock.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import os
import threading

from keras_transformer.errors import InputError
from keras_transformer.files.checksums import check_export
from keras_transformer.files.model_card import read_card
from keras_transformer.files.version_numbers import (
    CTRANSLATE2_MODEL,
    is_version,
    remedy_for,
    version_number,
    versions_in,
)
from keras_transformer.serving import LOG, errors
from keras_transformer.serving.loaded_ctranslate2 import LoadedCTranslate2
from keras_transformer.serving.loaded_model import LoadedModel

LATEST = "latest"
ALL = "all"
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 10, 600
"""Pause before a version that failed is loaded again, because it may have been copied only in part.
The pause doubles after each attempt, up to the longest."""


@dataclasses.dataclass(eq=False)
class Version:
    """One version of the model, from loading to end.

    Attributes:
        state: "LOADING", "AVAILABLE", "UNLOADING" or "END".
        error: the error that ended it.
        model: the model while the version is available or unloading.
        loading: of the thread that loads it. None before and after: its result would keep the model
            in memory.
    """

    number: int
    retry_seconds: float
    state: str = "LOADING"
    error: errors.ServingError | None = None
    model: LoadedModel | LoadedCTranslate2 | None = None
    loading: concurrent.futures.Future | None = None
    retry_at: float | None = None
    num_users: int = 0


class Versions:
    """The versions of one model. Create and use it in one event loop.

    Args:
        directory: `pathlib.Path` that contains a directory `<number>/` for each version.
        model_name: str.
        wanted: `LATEST`, `ALL` or a set of numbers.
        labels: dict from label to number. These versions are served in addition to `wanted`.
    """

    def __init__(self, directory, model_name, wanted, labels, settings, metrics):
        self.model_name = model_name
        self.all = {}  # number to `Version`
        self.labels = dict(labels)
        self._wanted = wanted
        self._directory = directory
        self._settings = settings
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._refreshing = asyncio.Lock()
        self._unloading = set()
        self._polling = None

    async def start(self):
        """Loads the wanted versions, and starts to look for new ones.

        Raises:
            InputError: there is no version that can be served, or a label names a missing one.
            OSError: the directory cannot be read.
        """
        if is_version(self._directory, if_refused=False):
            path = self._directory.resolve()
            is_numbered = version_number(path.name) is not None
            remedy = f"Serve {path.parent}." if is_numbered else f"Move it to {path}/1."
            raise InputError(
                "Expected the directory that has the versions of an export. "
                f"Received: {self._directory}, one version. {remedy}"
            )
        numbers = await self._found()
        wanted = self._numbers_wanted(self._wanted, numbers)
        missing = {**{str(n): n for n in wanted}, **self.labels}
        missing = {name: number for name, number in missing.items() if number not in numbers}
        if missing or not numbers:
            name, number = next(iter(missing.items()), ("", "<number>"))
            label = f" for the label {name}" if name in self.labels else ""
            found = (
                f"the versions {', '.join(map(str, sorted(numbers)))}" if numbers else "no version"
            )
            remedy = "Write one with `keras-transformer export RUN DIR`."
            raise InputError(
                f"Expected an export in {self._directory}/{number}{label}. "
                f"Received: {self._directory}, with {found}. "
                + (remedy if numbers else remedy_for(self._directory, remedy))
            )
        await self.refresh()
        for version in self.all.values():
            if version.error is not None:
                raise InputError(
                    f"Expected an export that can be served. Received: {self._directory}/"
                    f"{version.number}: {version.error}"
                )
        self._polling = asyncio.create_task(self._poll())

    async def close(self):
        """Unloads all versions after their open requests."""
        if self._polling is not None:
            self._polling.cancel()
        self._unload(self.available())
        await asyncio.gather(*self._unloading)

    def available(self):
        """Returns the numbers of the versions that answer, as a set."""
        return {v.number for v in self.all.values() if v.state == "AVAILABLE"}

    @contextlib.contextmanager
    def using(self, model_name, number=None, label=None):
        """Yields the `Version` for a request; it stays loaded until the request is answered.

        Args:
            model_name: str.
            number: int. None means the highest available version.
            label: str or None.
        Raises:
            ServingError: there is no such version.
        """
        version = self._version(model_name, number, label)
        version.num_users += 1
        try:
            yield version
        finally:
            version.num_users -= 1

    def _version(self, model_name, number, label):
        available = self.available() if model_name == self.model_name else set()
        if label is not None and model_name == self.model_name:
            if label not in self.labels:
                raise errors.invalid(f"Unrecognized servable version label: {label}")
            number = self.labels[label]
        found = available if number is None else available & {number}
        if not found:
            which = (
                f"Latest({model_name})" if number is None else f"Specific({model_name}, {number})"
            )
            raise errors.not_found(f"Servable not found for request: {which}")
        return self.all[max(found)]

    def status(self, model_name, number=None):
        """Returns the `Version`s that a status request asks for, as a list.

        Raises:
            ServingError: there is no such version.
        """
        numbers = set(self.all) if number is None else {number} & set(self.all)
        if not numbers or model_name != self.model_name:
            what = "any versions" if number is None else f"version {number}"
            raise errors.not_found(f"Could not find {what} of model {model_name}")
        return [self.all[n] for n in sorted(numbers)]

    async def change(self, wanted, labels):
        """Changes which versions are served, and what the labels name.

        Raises:
            ServingError: a wanted or labelled version is not available. Then the versions and the
                labels stay as they were.
        """
        # if the caller gives up, the versions that are being loaded are still loaded
        await asyncio.shield(asyncio.create_task(self._change(wanted, labels)))

    async def _change(self, wanted, labels):
        async with self._refreshing:
            for version in self.all.values():
                if version.retry_at is not None:  # a failed version is tried again at once
                    version.retry_at = 0.0
            before = self.available()
            no_longer_wanted = await self._load_wanted(wanted, labels)
            try:
                self._check_available(wanted, labels)
            except errors.ServingError:
                self._unload(self.available() - before)
                raise
            self._wanted, self.labels = wanted, dict(labels)
            self._unload(no_longer_wanted)

    def _check_available(self, wanted, labels):
        """Raises `ServingError` if a version that a change asks for is not available."""
        if isinstance(wanted, set) and not wanted <= self.available():
            missing = ", ".join(map(str, sorted(wanted - self.available())))
            raise errors.not_ready(
                f"Expected versions of model {self.model_name} that can be served. "
                f"Received: {missing}. The versions served before are still served."
            )
        for number in labels.values():
            if number not in self.available():
                raise errors.not_ready(
                    f"Request to assign label to version {number} of model {self.model_name}, "
                    "which is not currently available for inference"
                )

    async def refresh(self):
        """Loads new wanted versions, then unloads those that are no longer wanted."""
        async with self._refreshing:
            self._unload(await self._load_wanted(self._wanted, self.labels))

    async def _load_wanted(self, wanted, labels):
        """Loads the versions that are wanted or labelled.

        Returns:
            The set of the available versions that are neither; empty if one that is wanted could
            not be loaded, so that the old versions stay.
        """
        found = {}
        with contextlib.suppress(OSError):  # unreadable now
            found = await self._found()
        existing = set(found) | self.available()
        by_policy = self._numbers_wanted(wanted, found) & existing
        served = by_policy | (set(labels.values()) & existing)
        for number in sorted(served):
            if self._is_due(number):
                await self._load(number, found.get(number, self._directory / str(number)))
        available = self.available()
        return available - served if by_policy and by_policy <= available else set()

    async def _poll(self):
        while True:
            await asyncio.sleep(self._settings.poll_seconds)
            try:
                await self.refresh()
            except Exception as error:  # the loaded versions go on serving
                LOG.warning(f"warning: cannot look for versions: {type(error).__name__}: {error}")

    async def _found(self):
        """Returns `versions_in` the directory; a file system that hangs stops no answer."""
        return await asyncio.wrap_future(_in_own_thread("looking", versions_in, self._directory))

    def _numbers_wanted(self, wanted, found):
        if wanted == LATEST:
            # a version that was deleted from the directory serves until there is another
            numbers = found or self.available()
            return {max(numbers)} if numbers else set()
        return set(found) if wanted == ALL else set(wanted)

    def _is_due(self, number):
        version = self.all.get(number)
        if version is None or (version.state == "END" and version.error is None):
            return True
        if version.loading is not None:
            return False  # loading was given up and hangs; another attempt would hang too
        return version.retry_at is not None and self._loop.time() > version.retry_at

    async def _load(self, number, path):
        before = self.all.get(number)
        pause = RETRY_SECONDS
        if before is not None and before.retry_at is not None:
            pause = min(2 * before.retry_seconds, LONGEST_RETRY_SECONDS)
        version = self.all[number] = Version(number, pause)
        LOG.info(f"loading version {number}")
        version.loading = _in_own_thread("loading", _load_model, path)
        seconds = self._settings.load_timeout
        try:
            loading = asyncio.wrap_future(version.loading)
            version.model = await asyncio.wait_for(loading, seconds)
        except asyncio.TimeoutError:
            version.loading.add_done_callback(functools.partial(_close_late, version))
            error = errors.late(
                f"Expected the version to load within {seconds:g} seconds. Loading was given up. "
                "Export it again, or raise --load-timeout."
            )
            self._fail(version, error)
            return
        except Exception as error:
            self._fail(version, errors.from_tensorflow(error))
        else:
            version.state = "AVAILABLE"
            self._metrics.count_load("OK")
            LOG.info(f"serving version {number}")
            _in_own_thread("loading", _warm_up_others, version.model, number)
        version.loading = None

    def _fail(self, version, error):
        error.__traceback__ = error.__context__ = None  # their frames hold what was loaded so far
        version.state, version.error = "END", error
        version.retry_at = self._loop.time() + version.retry_seconds
        self._metrics.count_load(error.code.name)
        LOG.warning(f"warning: version {version.number} cannot be served: {error}")

    def _unload(self, numbers):
        for number in numbers:
            self.all[number].state = "UNLOADING"
            task = asyncio.create_task(self._end(self.all[number]))
            self._unloading.add(task)
            task.add_done_callback(self._unloading.discard)

    async def _end(self, version):
        while version.num_users:
            await asyncio.sleep(0.05)
        model, version.model = version.model, None
        await asyncio.to_thread(model.close)
        del model
        await asyncio.to_thread(_tidy_memory)
        version.state = "END"
        LOG.info(f"ended version {version.number}")


def _in_own_thread(name, function, *arguments):
    """Calls a function in a new thread, and returns its `concurrent.futures.Future`.

    Unlike the thread of a pool, this one delays neither another call nor the end of the process.
    """
    future = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # cancelling the wait does not stop the call

    def call():
        try:
            result = function(*arguments)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=call, name=name, daemon=True).start()
    return future


def _load_model(path):
    """Returns a loaded model; the `ServingError` of one that cannot be loaded says what to do."""
    try:
        return _read_model(path)
    except errors.ServingError:
        raise
    except InputError as error:
        raise errors.not_ready(str(error)) from None
    except PermissionError as error:
        raise errors.not_ready(
            "Expected files that this process may read. Received: "
            f"{os.path.basename(error.filename or '')}: {error.strerror}. "
            "Change their owner or mode."
        ) from None
    except Exception as error:
        error = errors.from_tensorflow(error)
        raise errors.ServingError(
            error.code, f"{str(error).rstrip('.')}. Export it again."
        ) from None


def _read_model(path):
    try:
        check_export(path)
    except ValueError as error:  # TensorFlow would load weights with flipped bits
        raise errors.damaged(error) from None
    is_ctranslate2 = (path / CTRANSLATE2_MODEL).exists()
    model = (LoadedCTranslate2 if is_ctranslate2 else LoadedModel)(path)
    model.card = read_card(path)
    _tidy_memory()
    return model


def _warm_up_others(model, number):
    try:
        model.warm_up_others()
    except Exception as error:
        error = errors.from_tensorflow(error)
        LOG.warning(f"warning: version {number} cannot answer one of its warm-up requests: {error}")


def _close_late(version, loading):
    """Closes a model that finished loading after the time limit."""
    try:
        if loading.exception() is None:
            loading.result().close()
    finally:
        version.loading = None


def _tidy_memory():
    """Frees unused graphs, and excludes the objects of all others from garbage collection.

    A graph contains reference cycles, so only the garbage collector frees it. Its many objects
    would make each later collection take tenths of a second in the middle of a request.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
