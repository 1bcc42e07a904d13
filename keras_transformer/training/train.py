"""Training, from text files to the best weights: read it from top to bottom."""

import contextlib
import dataclasses
import json
import shutil
import sys

import keras
import tqdm

import keras_transformer  # its rooms load when used: data and tokenizers need TensorFlow
from keras_transformer import backend
from keras_transformer.checksums import checksum
from keras_transformer.models import Transformer
from keras_transformer.text_files import check_directory
from keras_transformer.training.callbacks import BleuCallback
from keras_transformer.training.checkpoints import TrainingState, bytes_of
from keras_transformer.training.interruption import Interrupted, Interruption
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.progress import (
    Log,
    ObeyAtOnce,
    ProgressBar,
    SaveAndStop,
    check_log,
)
from keras_transformer.training.run import Identity, Run, build_model, load_weights
from keras_transformer.training.schedules import InverseSquareRoot, PaperSchedule
from keras_transformer.training.selection import candidates, choose_weights
from keras_transformer.whole_files import check_space, replacing


def print_line(text):
    with contextlib.suppress(OSError):  # a log that nobody reads any more ends no training
        tqdm.tqdm.write(text, file=sys.stderr)  # above a progress bar, not into it


def say_nothing(text):
    """In place of `print_line` where another worker speaks for all."""


def train(config, output, init_from=None, corpora=None, strategy="auto", write=print_line):
    """Trains a model on parallel text, or goes on training it, in a run directory.

    Args:
        config: `Config`.
        output: the run directory. New or empty, or a run: then training goes on from its last
            checkpoint, with the same settings but for the limits (steps, minutes, patience). A
            run whose training has ended under these limits stays as it is.
        init_from: another run, whose model, weights and tokenizer are the start (fine-tuning).
        corpora: `(training, validation)`, two `ParallelCorpus` in place of the files of
            `config.data`.
        strategy: which devices share each step, see `distribution.start`. The result is that of
            one device, up to rounding and the draws of dropout. Of several workers, each calls
            `train` with the same settings and text, and the first alone needs the run directory.
        write: called with each line of the report.
    Returns:
        Dict of the validation of the weights that the run offers from now on: `val_loss`,
        `val_perplexity`, `val_accuracy` and `val_bleu`.
    Raises:
        ValueError: bad input; nothing was written.
        Interrupted: SIGINT or SIGTERM; the work is saved.
        WorkerLost: another worker has stopped; all go on from the last checkpoint when started.
    """
    from keras_transformer.training import distribution  # needs TensorFlow, as data does

    with distribution.started(strategy, write) as devices, contextlib.ExitStack() as stack:
        run = Run(output)
        write = write if devices.is_chief else say_nothing
        own_data = config.data
        config, finished = devices.from_chief(
            lambda: begin(config, run, init_from, devices, stack, write)
        )
        if own_data.names_training_text:  # which may lie elsewhere on another machine
            config = dataclasses.replace(config, data=own_data)
        if finished:
            return finished["metrics"]

        # === Reproducibility ===
        keras.utils.set_random_seed(config.training.seed)
        if config.training.deterministic:
            backend.enable_determinism()

        # === Data ===
        tokenizers = devices.from_chief(lambda: ready_tokenizers(config, run, init_from))
        train_corpus, valid_corpus = corpora or read_corpora(
            config.data, config.training.seed, write
        )
        source_tokenizer, target_tokenizer = tokenizers or devices.from_chief(
            lambda: learn_tokenizers(config, train_corpus, write)
        )
        batch_settings = dict(
            tokenizer=source_tokenizer,
            target_tokenizer=target_tokenizer,
            batch_tokens=config.training.batch_tokens,
            max_length=config.data.max_length,
            static_shapes=config.training.static_shapes,
        )
        batches = make_batches(
            "training",
            train_corpus,
            seed=config.training.seed,
            sampling=config.tokenizer.sampling,
            **batch_settings,
        )
        valid_batches = make_batches("validation", valid_corpus, shuffle=False, **batch_settings)
        write(f"training    {batches.summary}; {len(batches):,} batches an epoch")
        write(f"validation  {valid_batches.summary}")

        # === Model ===
        num_parts = config.training.gradient_accumulation_steps
        jit_compile = config.training.jit_compile
        with devices.scope():
            model = build_model(
                config,
                source_tokenizer,
                target_tokenizer,
                config.training.mixed_precision,
                devices.model_class(num_parts),
            )
            model.compile(
                optimizer=make_optimizer(config.training, model.d_model),
                loss=TokenCrossEntropy(config.training.label_smoothing),
                metrics=[TokenAccuracy(), Perplexity()],
                jit_compile="auto" if jit_compile is None else jit_compile,
            )
            model.optimizer.build(model.trainable_variables)
        write(f"model       {model.count_params():,} parameters")
        write(f"devices     {step_in_words(config.training, devices)}")
        if model.jit_compile and not config.training.static_shapes:
            write("            each shape of a batch is compiled: training.static_shapes has few")

        with Interruption.watched() as interruption:
            # === Start, or go on ===
            tokenizers = source_tokenizer, target_tokenizer
            identity = Identity.of((train_corpus, valid_corpus), tokenizers)
            state = TrainingState(
                num_pairs=batches.summary.num_pairs, num_target_tokens=batches.num_target_tokens
            )
            saved = devices.from_chief(
                lambda: start(config, run, init_from, model, tokenizers, identity, state, write)
            )
            check_same_data(run, saved, (identity, state))  # on each worker
            _, state = saved
            devices.copy_from_chief([*model.variables, *model.optimizer.variables])

            # === Train ===
            saver = SaveAndStop(
                run.checkpoints, state, batches, config.training, interruption, devices
            )
            log = Log(run.metrics_path, state, len(batches), write)
            progress_bar = ProgressBar(state, config.training)
            bleu = BleuCallback(
                valid_corpus.source, valid_corpus.target, source_tokenizer, target_tokenizer
            )
            tensorboard = keras.callbacks.TensorBoard(run.tensorboard_path)
            alone = devices.num_workers == 1  # several workers end together
            callbacks = [saver]
            if devices.is_chief:
                log.drop_what_was_lost(is_at_end=saver.limit is not None)
                obey_at_once = [ObeyAtOnce(interruption)] if alone else []
                callbacks = [progress_bar, bleu, *obey_at_once, log, saver, tensorboard]
            try:
                fit(model, batches, valid_batches, config.training, saver, callbacks, devices)
            finally:
                progress_bar.close()

            # === Choose the weights ===
            def load(paths):
                if devices.is_chief:
                    run.checkpoints.load_mean(model, paths)
                devices.copy_from_chief(model.weights)

            def validation():
                metrics = model.evaluate(
                    devices.dataset(valid_batches.dataset(repeat=False), num_parts),
                    steps=len(valid_batches),
                    return_dict=True,
                    verbose=0,
                )
                translations = bleu.translations() if devices.is_chief else []
                bleu_here = bleu.score(translations) if devices.is_chief else 0.0
                metrics = {f"val_{name}": value for name, value in metrics.items()}
                return {**metrics, "val_bleu": float(devices.total(bleu_here))}

            if bleu.model is None:  # no `fit` has set it, as every step was done before
                bleu.set_model(model)
            keep = config.training.keep_checkpoints
            final = devices.from_chief(lambda: candidates(run.checkpoints, keep, write))
            with interruption.obeyed_at_once() if alone else contextlib.nullcontext():
                record = log.record if devices.is_chief else say_nothing
                best, best_mean, metrics = choose_weights(final, load, validation, record)
            if devices.is_chief:
                write(f"weights     {best}, by validation BLEU, is used from now on")
                finish(run, model, state, saver, config.training, best, best_mean, metrics)
            return devices.from_chief(lambda: metrics)


def begin(config, run, init_from, devices, stack, write):
    """Checks what is asked for, and locks the run until `stack` is closed.

    Returns:
        `(config, finished)`: the settings, and how the run has ended, or None.
    Raises:
        ValueError: it cannot be trained.
    """
    config, finished = check_start(config, run, init_from, devices, write)
    if finished is None:
        # refuses what no model can be, and what no layer can be, before the corpus is read
        Transformer(1, **config.model)
        Transformer(1, **{**config.model, "num_layers": 1, "num_decoder_layers": 1}).build()
        stack.enter_context(run.locked())
        # once more: another process may have made the run, or ended it, until it was locked
        config, finished = check_start(config, run, init_from, devices, write)
    return config, finished


def check_start(config, run, init_from, devices, write):
    """Returns the settings, and how the run has ended, or None; refuses what cannot be trained."""
    run.check_usable()
    check_directory(run.path)
    devices.check(config.training)
    if init_from is not None:
        init_run = Run(init_from)
        init_config = init_run.load_config()
        init_run.any_weights_path(say_nothing)
        config = dataclasses.replace(
            config, model=init_config.model, tokenizer=init_config.tokenizer
        )
    finished = None
    if run.exists:
        run.check_same(config)
        if finished := still_finished(run, config.training):
            write(
                f"{run.path} has ended at step {finished['step']:,}: {finished['reason']}. "
                "It goes on with more steps, minutes or patience."
            )
            if config.decoding != run.load_config().decoding:
                write(
                    "Its settings of the group decoding stay as they are: give others to "
                    "translate, evaluate or export."
                )
    return config, finished


def ready_tokenizers(config, run, init_from):
    """Returns the `(source, target)` tokenizers: the run's, another's, a file's; None: no such."""
    if run.exists:
        return run.load_tokenizers(config)
    if init_from is not None:
        return Run(init_from).load_tokenizers(config)
    if config.tokenizer.model is not None:
        return (keras_transformer.tokenizers.from_file(config.tokenizer.model),) * 2
    return None


def start(config, run, init_from, model, tokenizers, identity, state, write):
    """Makes the directory a run, or gives the model its last checkpoint.

    What may be refused is read and checked before a file is changed.

    Args:
        identity, state: `Identity` and `TrainingState` of a new run.
    Returns:
        `(identity, state)` of this run, as they stand.
    """
    if run.exists:
        check_log(run.metrics_path)
        run.recover()
        saved, damaged = run.checkpoints.restore_newest(model, write)
        check_same_data(run, (run.identity, saved or state), (identity, state))
        run.checkpoints.put_aside(damaged)
        identity = dataclasses.replace(identity, run_id=run.identity.run_id)
        run.write_identity(identity)
        if saved is not None:
            state = saved
            write(f"going on    from step {state.step:,}")
        config.save(run.config_path)  # with the limits of this call
        run.finished_path.unlink(missing_ok=True)
        run.averaged_path.unlink(missing_ok=True)  # of fewer steps; who asks now gets the best
        return identity, state
    run.recover()
    shutil.rmtree(run.checkpoints.path(0), ignore_errors=True)  # of a run that was killed here
    run.write_identity(identity)
    if init_from is not None:  # saved first: a run that is killed now still starts there
        load_weights(model, Run(init_from).any_weights_path(write))
        state.validated = False
        run.checkpoints.save(model, state, keep=1)
    run.create(config, *tokenizers)
    return identity, state


def finish(run, model, state, saver, training, best, best_mean, metrics):
    """Writes the averaged weights, and how the training has ended."""
    finished = {
        "step": state.step,
        "limit": saver.limit,
        "value": getattr(training, saver.limit),
        "reason": saver.reason,
        "checkpoint": best.checkpoint,
        "metrics": metrics,
    }
    if best_mean is not None:
        run.checkpoints.load_mean(model, best_mean.paths)
        with replacing(run.averaged_path) as partial:
            check_space(run.path, bytes_of(model.weights))
            model.save_weights(partial)
        finished["num_averaged"] = len(best_mean.paths)
        finished["averaged_checksum"] = checksum(run.averaged_path)
    with replacing(run.finished_path) as partial:
        partial.write_text(json.dumps(finished, indent=2))


def step_in_words(training, devices):
    """Returns the devices, and how they share a step, which is as large and counts as on one."""
    shares = devices.num_replicas * training.gradient_accumulation_steps
    tokens = training.batch_tokens
    if shares == 1:
        return f"{devices}, {tokens:,} tokens a step"
    return (
        f"{devices}, {tokens:,} tokens a step in {shares} shares of about {tokens // shares:,}; "
        "the learning rate is not changed"
    )


def read_corpora(data, seed, write=print_line):
    """Returns the `(training, validation)` corpora that a `DataConfig` names."""
    from_files = keras_transformer.data.ParallelCorpus.from_files
    valid_corpus = None
    if data.source_valid is not None:
        valid_corpus = from_files(data.source_valid, data.target_valid)
    if data.dataset is not None:
        from keras_transformer.data.tfds import from_tfds

        train_corpus, its_own = from_tfds(data.dataset.removeprefix("tfds:"))
        valid_corpus = valid_corpus or its_own
    elif data.source_train is not None:
        train_corpus = from_files(data.source_train, data.target_train)
    else:
        raise ValueError(
            "Expected data to train on: source_train and target_train, or dataset. "
            "Received: neither. Give both files, or the name of a data set."
        )
    if valid_corpus is None:
        train_corpus, valid_corpus = train_corpus.split(
            data.validation_share, data.validation_limit, seed
        )
        write(f"held out    {len(valid_corpus):,} of the training pairs, for validation")
    return train_corpus, valid_corpus


def make_batches(name, corpus, **settings):
    """Returns the `TranslationBatches` of a corpus; what they refuse says which text it is."""
    try:
        return keras_transformer.data.TranslationBatches(corpus, **settings)
    except ValueError as error:
        raise ValueError(f"{error} (the {name} text)") from None


def learn_tokenizers(config, corpus, write=print_line):
    """Returns the `(source, target)` tokenizers that the settings describe."""
    settings = config.tokenizer

    def learn(sentences):
        if settings.kind == "wordpiece":
            return keras_transformer.tokenizers.WordPieceTokenizer.train(
                sentences, settings.vocab_size
            )
        return keras_transformer.tokenizers.SentencePieceTokenizer.train(
            sentences, settings.vocab_size, settings.model_type, config.training.seed
        )

    if settings.shared:
        write(f"tokenizer   learning {settings.vocab_size:,} pieces")
        tokenizer = learn([*corpus.source, *corpus.target])
        return tokenizer, tokenizer
    write(f"tokenizers  learning {settings.vocab_size:,} pieces a language")
    return learn(corpus.source), learn(corpus.target)


def make_optimizer(training, d_model):
    """Returns Adam as in the paper (section 5.3), with the settings' schedule and clipping."""
    if training.schedule == "paper":
        schedule = PaperSchedule(d_model, training.warmup_steps)
    else:
        schedule = InverseSquareRoot(training.peak_learning_rate, training.warmup_steps)
    return keras.optimizers.Adam(
        schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9, global_clipnorm=training.clip_norm
    )


def fit(model, batches, valid_batches, training, saver, callbacks, devices):
    """Runs `model.fit`, with an epoch from one checkpoint to the next.

    `saver`, one of the callbacks, keeps its `state` up to date. A fit has epochs of one length,
    so the shorter one after an interruption, and the one before the last step, have their own.
    """
    state = saver.state
    num_parts = training.gradient_accumulation_steps
    every = training.checkpoint_every
    validation_data = devices.dataset(valid_batches.dataset(repeat=False), num_parts)
    to_checkpoint = every - state.step % every  # shorter where an interrupted run goes on
    try:
        if state.in_validation:
            epoch = (state.step - 1) // every
            logs = state.training_logs
            validate(model, validation_data, len(valid_batches), callbacks, epoch, logs)
        while saver.limit is None:
            steps = min(to_checkpoint, training.max_steps - state.step)
            whole = 1 if steps < every else (training.max_steps - state.step) // every
            dataset = batches.dataset(epoch=state.epoch, index=state.index)
            model.fit(
                devices.dataset(dataset, num_parts),
                steps_per_epoch=steps,
                initial_epoch=state.step // every,
                epochs=state.step // every + whole,
                validation_data=validation_data,
                validation_steps=len(valid_batches),
                callbacks=callbacks,
                shuffle=False,  # the batches are; it keeps Keras from warning
                verbose=0,
            )
            to_checkpoint = every
    except Exception as error:
        signal_number = saver.interruption.signal_number
        if signal_number is None or not saver.interruption.at_once:
            raise
        # Keras may have raised an error of its own in the place of the interruption
        saver.save(validated=False, in_validation=True)
        raise Interrupted(signal_number) from error


def validate(model, dataset, num_batches, callbacks, epoch, training_logs):
    """Ends an epoch as `fit` does it, where an interruption kept it from that."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=model)
    logs = model.evaluate(
        dataset, steps=num_batches, callbacks=callbacks, return_dict=True, verbose=0
    )
    logs = {f"val_{name}": value for name, value in logs.items()}
    callbacks.on_epoch_end(epoch, {**training_logs, **logs})


def still_finished(run, training):
    """Returns how the run's training ended, unless the limit that ended it has been raised."""
    finished = run.finished()
    if finished is None:
        return None
    limit = getattr(training, finished["limit"])
    is_raised = not limit or limit > finished["value"]  # None and 0 are no limit
    return None if is_raised else finished


def check_same_data(run, saved, now):
    """Raises `ValueError` where the text is not what it was.

    Args:
        saved, now: `(identity, state)` of the run and of this call.
    """
    (old, old_state), (new, new_state) = saved, now
    remedy = f"Give {run.path} the same files, or start another run with --init-from {run.path}."
    before = old_state.num_pairs, old_state.num_target_tokens
    after = new_state.num_pairs, new_state.num_target_tokens
    if before != after:
        raise ValueError(
            "Expected the training text that the run began with: {:,} pairs, {:,} target tokens. "
            "Received: {:,} pairs, {:,} target tokens. {}".format(*before, *after, remedy)
        )
    for name in ("training_text", "validation_text"):
        if getattr(old, name) not in (None, getattr(new, name)):
            what = name.replace("_", " ")
            raise ValueError(
                f"Expected the {what} that the run began with. Received: other text. {remedy}"
            )
