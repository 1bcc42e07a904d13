"""How a pipeline is run: where, with how many threads, and what is said when it fails."""

import contextlib
import logging
import re

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from keras_transformer.cli import console
from keras_transformer.config.settings import NUM_CORES
from keras_transformer.errors import InputError

REFUSED = re.compile(r"\bInputError: (.*?)(?= \[while running|\n|\\n|$)")
"""An `InputError` of a worker, in what Beam makes of it."""


def options_of(arguments):
    """Returns the `PipelineOptions` of arguments of the command line.

    Without `--runner`, and with `DirectRunner`, the pipeline runs on this machine in Python:
    `DirectRunner` would first download another program for it.
    """
    options = PipelineOptions(arguments)
    standard = options.view_as(StandardOptions)
    if standard.runner in (None, "DirectRunner"):
        standard.runner = "FnApiRunner"
    return options


def threads_of_a_process(options):
    """Returns the number of threads that each process of a pipeline may use.

    The processes of this machine share its cores. Elsewhere a core has a process.
    """
    if not _is_local(options):
        return 1
    num_workers = options.view_as(DirectOptions).direct_num_workers or NUM_CORES
    return max(1, NUM_CORES // num_workers)


def run_pipeline(options, build):
    """Runs a pipeline to its end.

    What Beam and the workers of this machine say is only shown if they fail.

    Args:
        options: `PipelineOptions`.
        build: function that adds the steps to a `Pipeline`.
    Raises:
        ValueError: what a worker has refused, as if it had been refused here.
        RuntimeError: a worker has failed, or the pipeline was cancelled.
    """
    if not _is_local(options):
        logging.getLogger().setLevel(logging.INFO)  # how the job goes on
    is_quiet = _is_local(options) and not console.wants_traceback()
    with console.messages_dropped() if is_quiet else contextlib.nullcontext():
        refused = _run(options, build)
    if refused is not None:
        raise refused


def _run(options, build):
    """Runs a pipeline; returns the `InputError` of a worker, or None."""
    pipeline = Pipeline(options=options)
    build(pipeline)
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:
        if found := REFUSED.search(f"{type(error).__name__}: {error}"):
            return InputError(found[1])
        raise
    if state != "DONE":
        raise RuntimeError(f"the pipeline has ended as {state}; its runner says why")


def _is_local(options):
    return options.view_as(StandardOptions).runner == "FnApiRunner"
