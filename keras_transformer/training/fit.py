"""`model.fit` from one checkpoint to the next, and what an interruption leaves to do."""

import keras

from keras_transformer.training.interruption import Interrupted


class StepCallbacks(keras.callbacks.CallbackList):
    """A `CallbackList` that gives callbacks the logs of a step as the step has returned them.

    Keras makes numbers of them first, and so waits in every step until the device has computed it.
    A device that need not wait for the next step computes while the host prepares it.
    """

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


def fit(model, batches, valid_batches, training, saver, callbacks, devices):
    """Runs `model.fit` with one Keras epoch from each checkpoint to the next.

    All epochs of one `model.fit` have the same length, so the shorter epochs, after an interruption
    and before the last step, have a `model.fit` of their own.

    Args:
        model: compiled model.
        batches, valid_batches: the task's.
        training: `TrainingConfig`.
        saver: `SaveAndStop`, one of the callbacks, which keeps its `state` up to date.
        callbacks: list of Keras callbacks.
        devices: `Distribution`.
    Raises:
        Interrupted: a signal came during a validation; the work is saved.
    """
    state = saver.state
    row_multiple = devices.num_replicas * training.gradient_accumulation_steps
    every = training.checkpoint_every
    validation_data = devices.dataset(
        valid_batches.dataset(repeat=False, row_multiple=row_multiple)
    )
    to_checkpoint = every - state.step % every  # fewer than `every` after an interruption
    try:
        if state.in_validation:
            epoch = (state.step - 1) // every
            logs = state.training_logs
            validate(model, validation_data, len(valid_batches), callbacks, epoch, logs)
        while saver.limit is None:
            steps = min(to_checkpoint, training.max_steps - state.step)
            num_epochs = 1 if steps < every else (training.max_steps - state.step) // every
            dataset = batches.dataset(
                epoch=state.epoch, index=state.index, row_multiple=row_multiple
            )
            model.fit(
                devices.dataset(dataset),
                steps_per_epoch=steps,
                initial_epoch=state.step // every,
                epochs=state.step // every + num_epochs,
                validation_data=validation_data,
                validation_steps=len(valid_batches),
                callbacks=StepCallbacks(callbacks, add_history=True, model=model),
                shuffle=False,  # the batches are shuffled already; True makes Keras warn
                verbose=0,
            )
            to_checkpoint = every
    except Exception as error:
        signal_number = saver.interruption.signal_number
        if signal_number is None or not saver.interruption.at_once:
            raise
        # `error` may be one that Keras raised in place of `Interrupted`
        saver.save(validated=False, in_validation=True)
        raise Interrupted(signal_number) from error


def validate(model, dataset, num_batches, callbacks, epoch, training_logs):
    """Does the validation at the end of an epoch that an interruption prevented."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=model)
    logs = model.evaluate(
        dataset, steps=num_batches, callbacks=callbacks, return_dict=True, verbose=0
    )
    logs = {f"val_{name}": value for name, value in logs.items()}
    callbacks.on_epoch_end(epoch, {**training_logs, **logs})
