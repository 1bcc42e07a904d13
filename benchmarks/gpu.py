"""Measures how well one GPU is used: by this package on JAX, and by PyTorch in the same call.

    KERAS_BACKEND=jax KERAS_TRANSFORMER_DATA=DATA python benchmarks/gpu.py --minutes 10

Needs JAX and PyTorch for the GPU, sacreBLEU and Transformers; TensorFlow is not needed. The package
itself is measured: `keras-transformer train` on Multi30k (DATA/multi30k), and `Translator` with the
weights that this has trained. PyTorch trains a model of the same sizes on the same batches,
compiled, with its fused attention and fused Adam, both in bfloat16. Hugging Face, and CTranslate2
where it is installed, translate with the same weights. `benchmarks/gpu_side.py` has the timed
processes.

`--parts memory`, for a call of its own, finds the largest batch of `big`, with and without
`training.rematerialize`.

Each part is a process with what is left of the minutes, so that it has all of the memory, and is
written when it ends; a part that fails, or for which no time is left, is listed as not measured.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from pinned import HERE, count, multi30k, positive, write_results
from training import write_batches

from keras_transformer.data.batch_plan import NUM_SHAPES

STEPS = {"tiny": 1500, "base": 600, "big": 150}
"""Of each preset: enough for `tiny` and `base` to write translations that end."""
TRANSLATED = ("tiny", "base")
PARTS = ("training", "translation", "memory")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--presets", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS[:2]))
    parser.add_argument("--batch-tokens", type=count, default=25_000)
    parser.add_argument("--sentences", type=count, default=30_000, help="to translate")
    parser.add_argument("--steps", type=count, help="of every preset, to try the program")
    parser.add_argument("--minutes", type=positive, default=10.0)
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "gpu.json")
    arguments = parser.parse_args()
    if os.environ.get("KERAS_BACKEND") != "jax":
        sys.exit("Expected KERAS_BACKEND=jax in the environment, before this program starts.")
    # before this process imports JAX, too, which else takes most of the memory
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    with tempfile.TemporaryDirectory() as folder:
        Measurement(arguments, pathlib.Path(folder)).run()


class Measurement:
    """The results so far, and what each part needs to add to them."""

    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.results = {}
        self.end = time.monotonic() + 60 * arguments.minutes

    def run(self):
        self.side("product", "product")
        write_batches(
            self.folder / "batches.npz",
            40,
            batch_tokens=self.arguments.batch_tokens,
            static_shapes=NUM_SHAPES,
        )
        trains = {"training", "translation"} & set(self.arguments.parts)
        for preset in self.arguments.presets if trains else ():
            self.train(preset)
            if "training" in self.arguments.parts:
                of_batches = ["--batches", self.folder / "batches.npz"]
                self.side(f"{preset}, PyTorch", "torch", "--preset", preset, *of_batches)
        if "translation" in self.arguments.parts:
            for preset in filter(TRANSLATED.__contains__, self.arguments.presets):
                for beam_size in (1, 4):
                    for library in ("ours", "hugging_face", "ctranslate2"):
                        flags = ["--beam-size", beam_size, "--run", self.folder / preset]
                        flags += ["--sentences", self.arguments.sentences]
                        self.side(f"{preset}, beam {beam_size}, {library}", library, *flags)
        if "memory" in self.arguments.parts:
            for rematerialize in ("false", "true"):
                self.largest_batch(rematerialize)
        print_tables(self.results)

    def train(self, preset):
        """Trains by the command: one step, which fills the cache, one with it, and all steps."""
        for name in ("cold", "with the cache"):
            seconds = self.command(f"{preset} {name}", preset, 1)
            if seconds is None:
                return
            self.add(f"{preset}, one step, {name}", {"seconds": seconds})
        steps = self.arguments.steps or STEPS[preset]
        seconds = self.command(preset, preset, steps)
        if seconds is not None:
            lines = (self.folder / preset / "metrics.jsonl").read_text().splitlines()
            records = map(json.loads, lines)
            record = [record for record in records if "tokens_per_second" in record][-1]
            kept = {key: record[key] for key in ("tokens_per_second", "loss", "val_bleu")}
            self.add(f"{preset}, ours", {"seconds": seconds, "steps": steps, **kept})

    def largest_batch(self, rematerialize):
        """Doubles the tokens of a batch of `big` until a step does not fit into the memory."""
        name, largest = f"big, rematerialize={rematerialize}", 0
        tokens = self.arguments.batch_tokens
        settings = {"rematerialize": rematerialize}
        while self.command(
            f"{name}, {tokens} tokens", "big", 1, "--dry-run", batch_tokens=tokens, **settings
        ):
            largest, tokens = tokens, 2 * tokens
        self.add(name, {"batch_tokens": largest})

    def command(self, name, preset, steps, *flags, **settings):
        """Trains a run in the folder `name`; returns the seconds, or None if it has failed."""
        settings = {
            "batch_tokens": self.arguments.batch_tokens,
            "mixed_precision": "mixed_bfloat16",
            "schedule": "inverse_square_root",
            "peak_learning_rate": 0.004 if preset == "tiny" else 0.001,
            "warmup_steps": 200,
            "checkpoint_every": max(1, steps // 3),
            **settings,
        }
        data = multi30k()
        command = ["train", "--preset", preset, "--output", self.folder / name, *flags]
        command += ["--max-steps", steps, "--source-train", data / "train.en.gz"]
        command += ["--target-train", data / "train.de.gz", "--set", "tokenizer.vocab_size=10000"]
        command += ["model.normalize_first=true", "decoding.max_length=64"]
        command += [f"training.{setting}={value}" for setting, value in settings.items()]
        return self.process(name, ["-m", "keras_transformer", *command], compiled=self.folder)

    def side(self, name, *arguments):
        """Adds the line of JSON that a process of `gpu_side.py` has printed."""
        self.process(name, [HERE / "gpu_side.py", *arguments], adds=True)

    def process(self, name, command, adds=False, compiled=None):
        """Returns the seconds of a process of Python, or None if it has failed."""
        started = time.monotonic()
        variables = {}
        if compiled is not None:
            variables["JAX_COMPILATION_CACHE_DIR"] = str(compiled / "compiled")
            variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        try:
            done = subprocess.run(
                [sys.executable, *map(str, command)],
                capture_output=True,
                text=True,
                timeout=max(1.0, self.end - started),
                env={**os.environ, **variables},
            )
        except subprocess.TimeoutExpired:
            self.add(name, {"not measured": "the minutes are over"})
            return None
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            self.add(name, {"not measured": " ".join(last)})
            return None
        if adds:
            self.add(name, json.loads(done.stdout.splitlines()[-1]))
        return time.monotonic() - started

    def add(self, name, row):
        self.results[name] = row
        print(name, json.dumps(row), flush=True)
        settings = {"batch_tokens": self.arguments.batch_tokens, "results": self.results}
        write_results(self.arguments.output, settings)


def print_tables(results):
    """Prints target tokens a second and their share of the peak, then sentences a second."""
    peak = results["product"].get("flops_per_second")
    print(f"\nbfloat16 product: {(peak or 0) / 1e12:,.0f} TFLOP/s")
    print("\n| | target tokens a second | of the peak | times PyTorch |")
    print("|---|---|---|---|")
    for preset in STEPS:
        ours, torch = (results.get(f"{preset}, {side}", {}) for side in ("ours", "PyTorch"))
        speed, peer = ours.get("tokens_per_second"), torch.get("tokens_per_second")
        flops = torch.get("flops_per_token")
        if speed and peer and peak:
            share = f"{speed * flops / peak:.0%} | {speed / peer:.2f}"
            print(f"| {preset} | {speed:,.0f} | {share} |")
            print(f"| {preset}, PyTorch | {peer:,.0f} | {peer * flops / peak:.0%} | |")
    print("\n| | sentences a second | with compiling |\n|---|---|---|")
    for name, row in results.items():
        if "sentences_per_second" in row:
            first = f"{row['sentences_per_second']:,.0f} | {row['with_compiling']:,.0f}"
            print(f"| {name} | {first} |")


if __name__ == "__main__":
    main()
