"""One start in its own process, for the start-up benchmark; prints a line of JSON."""

import argparse
import json
import os
import pathlib
import resource
import time

import pinned

PIPELINE_STEPS = 60


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--batches", help="ten batches, for KerasHub")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--run")
    parser.add_argument("--model", help="a run, or a version of an export")
    parser.add_argument("--started", type=float, help="time.time() of the command")
    SIDES[(arguments := parser.parse_args()).side](arguments)


def watch_steps(started):
    """Prints the seconds from the command to the first and the tenth step, and exits."""
    import keras

    original = keras.callbacks.CallbackList.on_train_batch_end
    seconds = {}

    def on_train_batch_end(self, batch, logs=None):
        original(self, batch, logs)
        seconds.setdefault("first", time.time() - started)
        watch_steps.count += 1
        if watch_steps.count == 10:
            print(json.dumps({**seconds, "tenth": time.time() - started}), flush=True)
            os._exit(0)

    watch_steps.count = 0
    keras.callbacks.CallbackList.on_train_batch_end = on_train_batch_end


def command(arguments):
    from keras_transformer.cli import main as run_command

    watch_steps(arguments.started)
    data = arguments.data
    (model,) = arguments.tokenizer.glob("*.model")
    files = ["--source-train", data / "train.en.gz", "--target-train", data / "train.de.gz"]
    files += ["--source-valid", data / "val.en.gz", "--target-valid", data / "val.de.gz"]
    settings = ["--preset", "tiny", "--set", f"tokenizer.model={model}", "--output", arguments.run]
    run_command([str(part) for part in ["train", *settings, *files]])


def keras_hub(arguments):
    import training_side

    watch_steps(arguments.started)
    batches = training_side.read_batches(arguments.batches)
    training_side.keras_hub(batches, training_side.SIZES["tiny"], False, 1)


def pipeline(arguments):
    """Prints the seconds of a step with `TranslationBatches`, and with the batches in memory."""
    import keras
    import tensorflow as tf

    from keras_transformer import Transformer
    from keras_transformer.data import ParallelCorpus, TranslationBatches
    from keras_transformer.tokenizers import load
    from keras_transformer.training import TokenCrossEntropy

    corpus = ParallelCorpus.from_files(
        arguments.data / "train.en.gz", arguments.data / "train.de.gz"
    )
    batches = TranslationBatches(corpus, load(arguments.tokenizer), batch_tokens=4096, seed=1)
    dataset = batches.dataset().take(PIPELINE_STEPS)
    ready = list(dataset)
    signature = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None] * len(x.shape), x.dtype), ready[0]
    )
    in_memory = tf.data.Dataset.from_generator(lambda: iter(ready), output_signature=signature)
    model = Transformer.from_preset("tiny", 10_000)
    model.compile(keras.optimizers.Adam(), TokenCrossEntropy(0.1))
    seconds = {"ready": [], "pipeline": []}
    for _ in range(4):  # in turn; the first round builds what each shape needs
        for name, source in (("ready", in_memory), ("pipeline", dataset)):
            start = time.perf_counter()
            model.fit(source, verbose=0, shuffle=False)
            seconds[name].append((time.perf_counter() - start) / PIPELINE_STEPS)
    print(json.dumps({name: min(runs[1:]) for name, runs in seconds.items()}))


class Phases:
    """What each phase of a start takes: seconds, those of the processor, and megabytes.

    The megabytes are what the resident memory has grown by at the end of the phase.

    Args:
        started: time.time() of the command.
    """

    def __init__(self, started):
        self.found = {}
        self.last = started, 0.0, 0.0

    def end(self, name):
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        now = time.time(), time.process_time(), pages * resource.getpagesize() / 1e6
        self.found[name] = [end - start for end, start in zip(now, self.last, strict=True)]
        self.last = now


def translate(arguments):
    """Prints the phases of the command `translate` until its first translation, and the second."""
    phases = Phases(arguments.started)
    from keras_transformer import cli  # noqa: F401, the command imports it
    from keras_transformer.cli import console

    phases.end("Python and the command")
    import tensorflow  # noqa: F401

    phases.end("import of TensorFlow")
    console.start_keras(to_search=True)
    import tensorflow_text  # noqa: F401

    phases.end("import of Keras and tensorflow-text")
    from keras_transformer import load
    from keras_transformer.files.text import iterate_lines

    translator = load(arguments.model)
    phases.end("loading the model")
    translator(["A dog runs on the beach."])
    phases.end("first translation")
    translator(["A dog runs on the beach."])
    phases.end("second translation")
    translator(list(iterate_lines(pinned.multi30k() / "test_2016_flickr.en.gz")))
    phases.end("1,000 sentences of Multi30k")
    print(json.dumps(phases.found))


def serve(arguments):
    """Prints the phases of the command `serve` until a version is available."""
    phases = Phases(arguments.started)
    from keras_transformer import cli  # noqa: F401, the command imports it
    from keras_transformer.cli import console

    phases.end("Python and the command")
    console.start_keras()
    phases.end("import of TensorFlow and Keras")
    from keras_transformer.files.checksums import check_export
    from keras_transformer.serving import loaded_model, server  # noqa: F401

    phases.end("import of the server")
    check_export(arguments.model)
    phases.end("checksums")
    call = loaded_model.Signature.__call__

    def timed(self, inputs, timeout=None):
        if not any(name.startswith("warm-up") for name in phases.found):
            phases.end("loading the session")
        found = call(self, inputs, timeout)
        rows = len(next(iter(inputs.values())))
        phases.end(f"warm-up of {self.name}, {rows} row{'s' * (rows > 1)}")
        return found

    loaded_model.Signature.__call__ = timed
    loaded_model.LoadedModel(arguments.model)
    print(json.dumps(phases.found))  # what comes after it does not delay the first client


SIDES = {
    "keras_transformer": command,
    "KerasHub": keras_hub,
    "pipeline": pipeline,
    "translate": translate,
    "serve": serve,
}

if __name__ == "__main__":
    main()
