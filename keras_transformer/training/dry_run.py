"""What a training would be: its checks, its text, its model and a few of its steps, unsaved."""

import itertools
import math
import resource
import sys
import time

import keras
import numpy as np

from keras_transformer.data.fit_batches import fit_batches
from keras_transformer.models.from_config import check_model
from keras_transformer.runs.run import Run
from keras_transformer.special_ids import UNKNOWN_ID
from keras_transformer.training import distribution
from keras_transformer.training.one_device import explaining_full_memory
from keras_transformer.training.start_or_resume import check_same_data, check_start, take_weights
from keras_transformer.training.train import check_lines, compiled_model, print_line, report_on
from keras_transformer.training.training_log import check_log
from keras_transformer.training.training_loop import row_multiple
from keras_transformer.training.translation_task import TranslationTask

TIMED_STEPS = 3
"""After the first, which is compiled."""
PERCENTILES = (50, 95, 99, 100)


class UnlabelledTask(TranslationTask):
    """Translation whose labels other runs do not predict now, which takes long."""

    def _soft_labels(self, run, write):
        write("labels      those of training.distill_from are not predicted now")


class StepTimes(keras.callbacks.Callback):
    """Notes when steps end."""

    def on_train_begin(self, logs=None):
        self.ends = [time.perf_counter()]

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())  # the loss in `logs` has been waited for


def dry_run(config, output, init_from=None, corpora=None, strategy="auto", write=print_line):
    """Reports on the training that `train` with these arguments would be, and writes no file.

    It makes the same checks, trains the tokenizer, and takes a few steps with the first batch.

    Raises:
        InputError: the training would refuse it.
    """
    with distribution.started(strategy, write) as devices:
        run, task = Run(output), UnlabelledTask(corpora)
        write = write if devices.is_chief else lambda line: None
        config, finished = devices.from_chief(
            lambda: check_start(config, run, init_from, devices, write)
        )
        if finished:
            return
        check_model(config)
        task.prepare(config, run, init_from, devices, write)
        model, _ = compiled_model(task, config, devices)
        report_on(model, config.training, devices, write)
        state = task.new_state()
        if run.exists:
            check_log(run.metrics_path)
            saved = run.checkpoints.restore_newest(model, write)[0] or state
            check_same_data(run, (run.identity, saved), (task.identity(), state))
            state = saved
        elif init_from is not None:
            take_weights(model, config, Run(init_from), task.new_rows, write)
        for line in text_lines(task.batches):
            write(line)
        for line in check_lines(model):
            write(line)
        with explaining_full_memory(config.training):
            compiling, seconds = step_seconds(model, task.batches, config.training, devices)
        memory = f"{peak_bytes() / 1e9:.1f} GB of this process"
        if on_device := devices.peak_bytes():
            memory += f", {on_device / 1e9:.1f} GB of a GPU"
        write(f"memory      {memory}")
        for line in time_lines(task.batches, config.training, state, seconds, compiling):
            write(line)
        write("            nothing was written")


def text_lines(batches):
    """Yields lines about the tokens of `TranslationBatches`."""
    for name, side, rows in zip(("lengths", ""), ("source", "target"), batches.rows, strict=True):
        half, most, nearly_all, longest = np.percentile(rows.lengths, PERCENTILES)
        yield (
            f"{name:<12}{side}: {half:.0f} tokens in the median, {most:.0f} at 95 %, "
            f"{nearly_all:.0f} at 99 %, {longest:.0f} at most"
        )
    shares = [np.mean(rows.ids == UNKNOWN_ID) for rows in batches.rows]
    yield "unknown     {:.2%} of the source tokens, {:.2%} of the target tokens".format(*shares)
    yield f"padding     {batches.padding():.1%} of the positions in a batch"


def step_seconds(model, batches, training, devices):
    """Returns the seconds of the first step, which is compiled, and of those after it.

    All of them have the same batch, as some backends compile each shape.
    """
    batch = next(batches.arrays(row_multiple=row_multiple(training, devices)))
    dataset = fit_batches(lambda: (batch for _ in itertools.count()), batch)
    times = StepTimes()
    model.fit(
        devices.dataset(dataset),
        steps_per_epoch=1 + TIMED_STEPS,
        callbacks=[times],
        shuffle=False,
        verbose=0,
    )
    first, *others = np.diff(times.ends)
    return first, np.mean(others)


def peak_bytes():
    """Returns the most memory that this process has had."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def time_lines(batches, training, state, seconds, compiling):
    """Yields lines about the time that is planned.

    Args:
        state: `TrainingState` with which the training goes on.
        seconds: of a step.
        compiling: seconds of the first step.
    """
    tokens = batches.num_target_tokens / len(batches) / seconds
    yield (
        f"step        {seconds:.2g} s, {tokens:,.0f} target tokens a second; "
        f"the first one {compiling:.0f} s"
    )
    steps = max(0, training.max_steps - state.step)
    epochs, validations = steps / len(batches), math.ceil(steps / training.checkpoint_every)
    yield f"plan        {steps:,} steps, {epochs:,.1f} epochs, {validations:,} validations"
    hours = f"{steps * seconds / 3600:,.1f} hours of steps, and validations"
    if training.max_minutes is not None:
        left = max(0.0, training.max_minutes - state.minutes)
        hours += f"; max_minutes leaves {left / 60:,.1f}"
    if training.patience:
        hours += "; patience may end it sooner"
    yield f"time        {hours}"
