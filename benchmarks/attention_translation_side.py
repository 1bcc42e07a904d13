"""Trains and exports one model of the translation benchmark; prints a line of JSON.

`benchmarks/attention_translation.py` calls it in its own process.
"""

import argparse
import json
import pathlib

from pinned import multi30k

KINDS = {  # windows and blocks shorter than a sentence of 14 tokens
    "dense": {},
    "local, window 4": {"attention": {"name": "local", "window": 4}},
    "block of 8": {"attention": {"name": "block", "block_size": 8}},
    "strided by 4": {"attention": {"name": "strided", "stride": 4}},
    "linear": {"attention": "linear"},
    "linear, across too": {"attention": "linear", "cross_attention": "linear"},
    "Performer, 256 features": {"attention": "performer"},
}
TRAINING = {  # `tiny` with a shorter warm-up, and one validation at the end
    "peak_learning_rate": 0.003,
    "warmup_steps": 500,
    "checkpoint_every": 1_000_000,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=pathlib.Path, help="for the run and the export")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--beam-size", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()

    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)

    from keras_transformer import load
    from keras_transformer.config import Config
    from keras_transformer.export import export_saved_model
    from keras_transformer.training import train

    data = multi30k()
    config = Config.from_preset("tiny").merged(
        {
            "data": {
                f"{side}_{part}": data / f"{file}.{language}.gz"
                for side, language in (("source", "en"), ("target", "de"))
                for part, file in (("train", "train"), ("valid", "val"))
            },
            "model": KINDS[arguments.kind],
            "training": {**TRAINING, "max_minutes": arguments.minutes},
        }
    )
    run = arguments.folder / "run"
    metrics = train(config, run)
    step = json.loads((run / "finished.json").read_text())["step"]
    translator = load(run, beam_size=arguments.beam_size)
    export_saved_model(translator, arguments.folder / f"export-{arguments.beam_size}")
    print(json.dumps({"steps": step, **metrics}))


if __name__ == "__main__":
    main()
