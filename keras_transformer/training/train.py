"""Training, from text files to the best weights. Read `train_task` from top to bottom."""

import contextlib
import dataclasses
import importlib.util
import math
import shlex
import sys
from collections.abc import Callable
from typing import Any

import keras
import tqdm

from keras_transformer import backend
from keras_transformer.checks import Subject, verdicts
from keras_transformer.config import Config, TrainingConfig
from keras_transformer.config.settings import check_known
from keras_transformer.data import ParallelCorpus
from keras_transformer.data.prepared import PreparedCorpus
from keras_transformer.errors import InputError
from keras_transformer.layers.lora import PROJECTIONS
from keras_transformer.layers.nested import nested_layers
from keras_transformer.layers.rematerialization import of_blocks
from keras_transformer.models.from_config import model_class_of
from keras_transformer.runs.model_state import path_within
from keras_transformer.runs.run import Run
from keras_transformer.training import distribution
from keras_transformer.training.final_weights import candidates, choose_weights, save_final_weights
from keras_transformer.training.interruption import Interruption, StopAtOnce
from keras_transformer.training.one_device import explaining_full_memory, times_float32
from keras_transformer.training.optimizer import AveragesInPlace, make_optimizer
from keras_transformer.training.progress import Display, Meter, Table
from keras_transformer.training.schedules import Decay, PlannedEnd, schedule_of
from keras_transformer.training.start_or_resume import (
    check_same_data,
    create_or_restore,
    start_or_resume,
)
from keras_transformer.training.training_log import Log, TensorBoard
from keras_transformer.training.training_loop import SaveAndStop, evaluate, fit
from keras_transformer.training.translation_task import TranslationTask
from keras_transformer.training.write_lexicon import write_lexicon
from keras_transformer.types import StrPath

FIRST_CHECKS = "finite weights", "causality", "padding"
"""Made before the first step of a new run, in about two seconds."""


def print_line(text):
    """Writes a line to standard error, above a progress bar; a closed stream is ignored."""
    with contextlib.suppress(OSError):
        tqdm.tqdm.write(text, file=sys.stderr)


def train(
    config: Config,
    output: StrPath,
    init_from: StrPath | None = None,
    corpora: tuple[ParallelCorpus, ParallelCorpus] | None = None,
    strategy: str = "auto",
    write: Callable[[str], Any] = print_line,
) -> dict[str, float]:
    """Trains a translation model on parallel text in a run directory, or goes on training it.

    Args:
        config: `Config`.
        output: the run directory. If it is new or empty, a new run is made there. If it holds a
            run, training goes on from its last checkpoint; the settings must be the same except
            for a few, such as the limits (steps, minutes, patience). If that run has ended under
            these limits, nothing changes.
        init_from: path of another run, whose model, weights and tokenizer are the start
            (fine-tuning). The search is that of `config`.
        corpora: `(training, validation)`, two `ParallelCorpus` instead of the files that
            `config.data` names.
        strategy: the devices that share each step, see `distribution.start`. The result is that of
            one device, except for rounding and the random numbers of dropout. With several
            workers, each calls `train` with the same settings and text; only the first needs the
            run directory.
        write: called with each line of the report, which goes to standard error by default.
    Returns:
        Dict with the validation metrics `val_loss`, `val_perplexity`, `val_accuracy` and `val_bleu`
        of the chosen weights: a mean of the last checkpoints, or the best checkpoint if its BLEU
        is clearly higher. For a run that has already ended it is the dict stored then.
    Raises:
        InputError: bad input; nothing was written. Or the memory is too small for a step; the
            checkpoints before it are kept.
        Interrupted: SIGINT or SIGTERM; the work is saved.
        FloatingPointError: the training diverges; the checkpoints before it are kept.
        WorkerLost: another worker has stopped. Started again, all go on from the last checkpoint.
    """
    return train_task(TranslationTask(corpora), config, output, init_from, strategy, write)


def train_task(task, config, output, init_from=None, strategy="auto", write=print_line):
    """Trains the model of a task; the other arguments and the result are those of `train`.

    Args:
        task: `TranslationTask`, or another object with its attributes and methods.
    """
    with distribution.started(strategy, write) as devices, contextlib.ExitStack() as stack:
        run = Run(output)
        write = write if devices.is_chief else lambda line: None
        own_data = config.data
        config, finished = devices.from_chief(
            lambda: start_or_resume(config, run, init_from, devices, stack, write)
        )
        if own_data.names_training_text:  # each worker may have its files at another path
            config = dataclasses.replace(config, data=own_data)
            if own_data.prepared is not None:
                data = PreparedCorpus(own_data.prepared, own_data).data
                config = dataclasses.replace(config, data=data)
        if finished:
            return finished["metrics"]
        training = config.training

        # === Data ===
        task.prepare(config, run, init_from, devices, write)

        # === Model and optimizer ===
        model, schedule = compiled_model(task, config, devices)
        report_on(model, training, devices, write)

        with Interruption.watched() as interruption:
            # === A new run, or the last checkpoint of this one ===
            saved = devices.from_chief(
                lambda: create_or_restore(config, run, init_from, model, task, write)
            )
            check_same_data(run, saved, (task.identity(), task.new_state()))  # on each worker
            _, state = saved
            devices.copy_from_chief([*model.variables, *model.optimizer.variables])
            if devices.is_chief and state.step == 0:
                for line in check_lines(model, FIRST_CHECKS):
                    write(line)
            if devices.is_chief and config.decoding.shortlist and not run.lexicon_path.exists():
                write_lexicon(run.path, None if config.data.prepared else task.corpora[0], write)

            # === Fit ===
            averages = None
            if training.ema is not None:
                averages = AveragesInPlace(model, in_place=state.step > 0)
            saver = SaveAndStop(
                run.checkpoints, state, task, training, interruption, devices, averages
            )
            callbacks = [saver]
            if isinstance(schedule, Decay):
                callbacks.append(PlannedEnd(schedule, state, training))
            if averages is not None:
                callbacks.append(averages)
            table = Table(task, write)
            meter = Meter(state, training, len(task.batches))
            log = Log(run.metrics_path, state, task, table)
            display = nothing = contextlib.nullcontext()
            is_only_worker = devices.num_workers == 1  # several workers stop together
            if devices.is_chief:
                log.discard_lost_lines(is_at_end=saver.limit is not None)
                stop_at_once = [StopAtOnce(interruption)] if is_only_worker else []
                callbacks = [meter, *task.callbacks(), *stop_at_once, log, *callbacks]
                if importlib.util.find_spec("tensorflow"):  # which Keras writes these files with
                    callbacks.append(TensorBoard(run.tensorboard_path, state, meter, task))
                display = Display(meter, table)
            write(table.heading())
            with display, explaining_full_memory(training):
                fit(model, task.batches, task.valid_batches, training, saver, callbacks, devices)

            # === Save the best weights ===
            def load(paths):
                if devices.is_chief:
                    run.checkpoints.load_mean(model, paths)
                devices.copy_from_chief(model.weights)

            def validate():
                metrics = evaluate(model, task.valid_batches, training, devices)
                scores = task.scores(model, metrics) if devices.is_chief else {task.monitor: 0.0}
                chosen_by = float(devices.total(scores[task.monitor]))
                return {**metrics, **scores, task.monitor: chosen_by}

            # the mean of several products of low rank has a higher one
            largest = 1 if training.lora_rank else training.keep_checkpoints
            final = devices.from_chief(lambda: candidates(run.checkpoints, largest, write))
            meter.begin("choosing the weights")
            at_once = interruption.stopping_at_once() if is_only_worker else nothing
            with display, at_once:
                record = log.record if devices.is_chief else lambda values: None
                best, best_mean, metrics = choose_weights(final, load, validate, record, task.rank)
            if devices.is_chief:
                chosen_by = task.score_name if task.rank(metrics)[0] else "loss"
                write(f"weights     {best}, chosen by validation {chosen_by}")
                save_final_weights(run, model, saver, best, best_mean, metrics)
                report_end(run, saver.reason, write)
            return devices.from_chief(lambda: metrics)


def compiled_model(task, config, devices):
    """Returns the untrained model of a task, and the schedule of its learning rate."""
    training = config.training
    keras.utils.set_random_seed(training.seed)
    if training.deterministic:
        backend.enable_determinism()
    recomputed = of_blocks() if training.rematerialize else contextlib.nullcontext()
    with devices.scope(), recomputed:
        model_class = devices.model_class(
            model_class_of(config), training.gradient_accumulation_steps
        )
        model = task.build_model(model_class)
        choose_trained_part(model, training)
        task.check_trained_part(model)
        schedule = schedule_of(training, model.d_model)
        model.compile(
            optimizer=make_optimizer(training, schedule),
            loss=task.loss(),
            metrics=task.metrics(),
            jit_compile="auto" if training.jit_compile is None else training.jit_compile,
        )
        model.optimizer.build(model.trainable_variables)
    return model, schedule


def choose_trained_part(model, training):
    """Gives a built model the adapters of `training.lora_rank`, and freezes `training.freeze`.

    A name is that of any layer, such as "feed_forward", or the path of one, "decoder/block_0".

    Raises:
        InputError: a model without projections to adapt, a name of no layer, or nothing is left to
            train.
    """
    if training.lora_rank:
        model.enable_lora(training.lora_rank, PROJECTIONS)
    named = {}
    for layer in nested_layers(model)[1:]:
        if layer.weights:
            path = path_within(model, layer)
            named.setdefault(layer.name, []).append(layer)
            named.setdefault(path, []).append(layer)
    for name in (training.freeze or "").split():
        if name not in named:  # the list is shorter than all paths
            check_known(name, sorted(n for n in named if n.count("/") < 2), "a layer to freeze")
        for layer in named[name]:
            layer.trainable = False
    if not model.trainable_variables:
        raise InputError(
            "Expected a part of the model that is trained. Received: "
            f"training.freeze={training.freeze}, which is all of it. Name fewer layers."
        )


def report_on(model, training, devices, write):
    """Writes the size of the model, who shares a step, and which settings are probably wrong."""
    trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    part = f", of which {trained:,} are trained" if trained < model.count_params() else ""
    write(f"model       {model.count_params():,} parameters{part}")
    num_parts = devices.num_replicas * training.gradient_accumulation_steps
    tokens, parts = training.batch_tokens, ""
    if num_parts > 1:
        parts = f" in {num_parts} parts of about {tokens // num_parts:,}"
        parts += "; the learning rate does not change"
    write(f"devices     {devices}, {tokens:,} tokens per step{parts}")
    if (
        training.schedule == "noam"
        and training.peak_learning_rate != TrainingConfig.peak_learning_rate
    ):
        write("            the schedule noam has no training.peak_learning_rate: choose another")
    if model.jit_compile and not training.static_shapes:
        write("            XLA compiles each shape of a batch: set training.static_shapes=5")
    if training.mixed_precision and (times := times_float32(training.mixed_precision)) > 1.2:
        write(
            f"            {training.mixed_precision} is slow here: a product takes {times:.1f} "
            "times as long as in float32. Without training.mixed_precision, steps are shorter"
        )


def check_lines(model, names=None):
    """Yields lines about what checks of these names, or all quick ones, say of a model."""
    found = list(verdicts(Subject(model), names, only_quick=True))
    failed = [(name, verdict) for name, verdict in found if verdict.status == "failed"]
    for name, verdict in failed:
        yield f"check       {name} failed: {verdict.found}. {verdict.advice}"
    if not failed:
        held = [name for name, verdict in found if verdict.status == "held"]
        yield f"checks      {', '.join(held)}: held"


def report_end(run, reason, write):
    """Writes why a training has ended, where its run is, and the commands that use it."""
    write(f"ended       {reason}")
    write(f"run         {run.path}")
    path = shlex.quote(str(run.path))
    write(f"next        keras-transformer translate {path} --input F")
    write(f"            keras-transformer evaluate {path} --source F --target F")
    of_format = "" if importlib.util.find_spec("tensorflow") else " --format ctranslate2"
    write(f"            keras-transformer export {path} DIR{of_format}")
