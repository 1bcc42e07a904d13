"""How a training begins: it is checked, the run is locked, and a new run is made or restored."""

import dataclasses
import shutil

import keras
import numpy as np

from keras_transformer.data.batch_plan import NUM_SHAPES
from keras_transformer.data.prepared import PreparedCorpus
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_directory
from keras_transformer.models.from_config import check_model, check_model_settings
from keras_transformer.runs.load import any_weights_path, build_model, load_weights
from keras_transformer.runs.run import Run
from keras_transformer.training.distillation import check_teachers, teachers_of
from keras_transformer.training.training_log import check_log


def start_or_resume(config, run, init_from, devices, stack, write):
    """Checks the settings and the run directory, and locks it until `stack` is closed.

    Returns:
        `(config, finished)`: the settings to train with, and the content of `finished.json` if
        there is nothing left to train, otherwise None.
    Raises:
        InputError: this training is not possible.
    """
    config, finished = check_start(config, run, init_from, devices, write)
    if finished is None:
        check_model(config)  # before the corpus is read
        stack.enter_context(run.locked())
        # again: another process may have made or finished the run before it was locked
        config, finished = check_start(config, run, init_from, devices, write)
    return config, finished


def check_start(config, run, init_from, devices, write):
    """Returns what `start_or_resume` returns, without the lock."""
    check_model_settings(config)
    run.check_usable()
    check_directory(run.path)
    devices.check(config.training)
    config = _with_static_shapes(config, run)
    if init_from is not None:
        init_run = Run(init_from)
        if run.exists and not init_run.exists:
            init_run = run  # the other has gone, and what was taken from it is here
        config = _with_settings_of(init_run, config, ("tokenizer", "model"), write)
        if not run.exists:
            any_weights_path(init_run, lambda line: None)
    elif config.training.lora_rank and not run.exists:
        raise InputError(
            "Expected a run whose weights the adapters adapt. Received: "
            f"training.lora_rank={config.training.lora_rank} without --init-from. Name the run: "
            "--init-from RUN, or set training.lora_rank=0."
        )
    if config.data.prepared is not None:
        config = _with_settings_of_prepared(config, run, init_from, write)
    teachers = teachers_of(config.training)
    if teachers:
        like = run if run.exists else Run(teachers[0])
        config = _with_settings_of(like, config, ("tokenizer",), write)
    finished = None
    if run.exists:
        if run.is_imported:
            raise InputError(
                "Expected a run that was trained here, to go on with. Received: "
                f"{run.path}, which was imported. Start another run with --init-from {run.path}."
            )
        run.check_same(config)
        if finished := still_finished(run, config.training):
            write(
                f"{run.path} has ended at step {finished['step']:,}: {finished['reason']}. "
                "To go on, allow more steps, minutes or patience."
            )
        decoding = run.load_config().decoding
        if config.decoding != decoding:  # that of `tune-decoding`, perhaps
            config = dataclasses.replace(config, decoding=decoding)
            write(
                "The settings of the group decoding stay those of the run: translate, evaluate and "
                "export have flags for another search."
            )
    if teachers and finished is None and not run.has_soft_labels:
        begun_from = run.path if run.exists else init_from
        check_teachers(teachers, begun_from, config.data.max_length)
    return config, finished


def _with_static_shapes(config, run):
    """Returns settings with the run's number of shapes, or what fits the backend of a new one.

    Another backend, which goes on with the run, then has the same batches.
    """
    if config.training.static_shapes is not None:
        return config
    number = NUM_SHAPES if keras.backend.backend() == "jax" else 0
    if run.exists:
        number = run.load_config().training.static_shapes
    return dataclasses.replace(
        config, training=dataclasses.replace(config.training, static_shapes=number)
    )


def _with_settings_of(other, config, groups, write):
    """Returns `config` with groups of the settings of another run, and says what it replaces."""
    of_other = other.load_config()
    taken = {group: getattr(of_other, group) for group in groups}
    if teachers_of(config.training) or config.data.prepared:  # which are of one tokenization
        taken["tokenizer"] = dataclasses.replace(taken["tokenizer"], sampling=0.0)
    replaced = [f"{group}.*" for group in groups if taken[group] != getattr(config, group)]
    if replaced:
        write(f"The settings {' and '.join(replaced)} are those of the run {other.path}.")
    return dataclasses.replace(config, **taken)


def _with_settings_of_prepared(config, run, init_from, write):
    """Returns `config` with the settings that its prepared text has fixed."""
    corpus = PreparedCorpus(config.data.prepared, config.data)
    tokenizer = config.tokenizer
    if run.exists:
        tokenizer = run.load_config().tokenizer
    elif init_from is None:
        tokenizer = corpus.manifest.tokenizer
    replaced = []
    if corpus.data.max_length != config.data.max_length:
        replaced.append(f"data.max_length={corpus.data.max_length}")
    if tokenizer != config.tokenizer:
        replaced.append("tokenizer.*")
    if replaced:
        write(f"The settings {' and '.join(replaced)} are those of the text in {corpus.path}.")
    return dataclasses.replace(config, data=corpus.data, tokenizer=tokenizer)


def create_or_restore(config, run, init_from, model, task, write):
    """Creates the run, or gives the model the run's last checkpoint.

    Everything that can be refused is read and checked before a file is changed.

    Args:
        task: the task, after `prepare`.
    Returns:
        `(identity, state)`: the `Identity` and the `TrainingState` of the run.
    """
    identity, state = task.identity(), task.new_state()
    if run.exists:
        check_log(run.metrics_path)
        run.recover()
        saved, damaged = run.checkpoints.restore_newest(model, write)
        check_same_data(run, (run.identity, saved or state), (identity, state))
        run.checkpoints.mark_damaged(damaged)
        first = run.identity
        identity = dataclasses.replace(identity, run_id=first.run_id, command=first.command)
        run.write_identity(identity)
        if saved is not None:
            state = saved
            is_past_other = init_from is not None and state.step > 0
            own = ", with its own weights and not those of init_from" if is_past_other else ""
            write(f"going on    from step {state.step:,}{own}")
        task.save(run)
        config.save(run.config_path)  # with the limits of this call
        run.finished_path.unlink(missing_ok=True)
        for path in (run.averaged_path, run.adapter_path):
            path.unlink(missing_ok=True)  # it is older than the weights to come
        return identity, state
    run.recover()
    shutil.rmtree(run.checkpoints.path(0), ignore_errors=True)  # left by a killed process
    run.write_identity(identity)
    if init_from is not None:  # saved first: if this process is killed, the next starts there too
        take_weights(model, config, Run(init_from), task.new_rows, write)
        state.validated = False
        run.checkpoints.save(model, state, keep=1)
    task.save(run)
    run.create(config, *task.tokenizers)
    return identity, state


def take_weights(model, config, other, new_rows, write):
    """Gives the model the weights of another run, and rows of its tables to new tokens.

    Args:
        new_rows: see `TranslationTask`.
    """
    path = any_weights_path(other, write)
    if not new_rows:
        load_weights(model, path)
        return
    smaller = build_model(config, *other.load_tokenizers(config))
    load_weights(smaller, path)
    for weight, old in zip(model.weights, smaller.weights, strict=True):
        value = keras.ops.convert_to_numpy(old)
        for axis in np.flatnonzero(np.not_equal(weight.shape, value.shape)):
            rows = [
                value.mean(axis, keepdims=True) if row is None else value.take([row], axis)
                for row in new_rows
            ]
            value = np.concatenate([value, *rows], axis)
        weight.assign(value)


def still_finished(run, training):
    """Returns the content of `finished.json`, or None if the limit that ended it was raised."""
    finished = run.finished()
    if finished is None:
        return None
    limit = getattr(training, finished["limit"])
    is_raised = not limit or limit > finished["value"]  # None and 0 mean no limit
    return None if is_raised else finished


def check_same_data(run, saved, now):
    """Raises `InputError` if the text is not the text that the run began with.

    Args:
        saved, now: `(identity, state)` of the run and of this call.
    """
    (old, old_state), (new, new_state) = saved, now
    remedy = f"Give {run.path} the same files, or start another run with --init-from {run.path}."
    before = old_state.num_pairs, old_state.num_target_tokens
    after = new_state.num_pairs, new_state.num_target_tokens
    if before != after:
        raise InputError(
            "Expected the training text that the run began with: {:,} pairs, {:,} target tokens. "
            "Received: {:,} pairs, {:,} target tokens. {}".format(*before, *after, remedy)
        )
    for name in ("training_text", "validation_text", "alignments"):
        if getattr(old, name) not in (None, getattr(new, name)):
            what, other = name.replace("_", " "), name.rpartition("_")[2]
            raise InputError(
                f"Expected the {what} that the run began with. Received: other {other}. {remedy}"
            )
