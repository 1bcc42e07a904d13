"""How many small wrong changes of the package do its tests notice?

    python benchmarks/wrong_changes.py                  all of them
    python benchmarks/wrong_changes.py "top_p inclusive" "missed lock"

Each change is made in a copy of the repository, where the tests of the changed file run first, then
those of the folders that are named beside it. A change that no test notices is a gap.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
TIME_LIMIT = "timeout", "--signal=KILL", "900"
"""Seconds for the tests of a file or of folders: a wrong search may never end. Exit code -9."""
IGNORED = shutil.ignore_patterns(".git", ".venv", "__pycache__", "site")
CHANGES = (  # what the change does, the right text, the wrong text, folders of tests
    (
        "causal off by one",
        "return query_positions >= ops.arange(key_length)[None, :]",
        "return query_positions > ops.arange(key_length)[None, :] - 2",
        "layers models decoding",
    ),
    (
        "padding mask ignored with causal",
        'masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])',
        'masks.append(ops.ones_like(ops.cast(padding_mask, "bool")[:, None, None, :]))',
        "layers models",
    ),
    (
        "attention scale",
        "query = query * (1.0 / math.sqrt(query.shape[-1]))\n    scores",
        "query = query * (1.0 / query.shape[-1])\n    scores",
        "layers",
    ),
    (
        "no zero rows",
        "return ops.where(mask, weights, 0.0)  # for rows",
        "return weights  # for rows",
        "layers",
    ),
    (
        "memory padding bias lost",
        'bias = ops.where(padding_mask, ops.zeros((), "float32"), MASKED_SCORE)',
        'bias = ops.where(padding_mask, ops.zeros((), "float32"), -1.0)',
        "layers models decoding",
    ),
    (
        "linear attention chunk includes itself twice",
        "before = ops.concatenate([ops.zeros_like(chunk_sums[:, :1]), before], axis=1)",
        "before = ops.concatenate([chunk_sums[:, :1], before], axis=1)",
        "layers",
    ),
    (
        "local window too wide",
        "return ops.abs(query_positions - key_positions) <= self.window",
        "return ops.abs(query_positions - key_positions) <= self.window + 1",
        "layers models",
    ),
    ("strided blocks double", "blocks[:, None] != blocks", "blocks[:, None] == blocks", "layers"),
    (
        "block boundary",
        "return query_positions // self.block_size == key_positions // self.block_size",
        "return query_positions // self.block_size >= key_positions // self.block_size",
        "layers models",
    ),
    (
        "random features sign",
        "exponents = exponents - ops.sum(ops.square(x), axis=-1, keepdims=True) / 2",
        "exponents = exponents - ops.sum(ops.square(x), axis=-1, keepdims=True)",
        "layers",
    ),
    (
        "rotary swapped",
        "even * cosines - odd * sines, odd * cosines + even * sines",
        "even * cosines + odd * sines, odd * cosines - even * sines",
        "layers",
    ),
    (
        "alibi slope",
        "slopes = [2.0 ** (-8 * h / power)",
        "slopes = [2.0 ** (-4 * h / power)",
        "layers",
    ),
    (
        "post norm order",
        "return self.normalization(x) if self.normalize_first else x",
        "return x if self.normalize_first else self.normalization(x)",
        "layers models",
    ),
    (
        "embedding scale default",
        "        scale: bool = True,\n        stddev",
        "        scale: bool = False,\n        stddev",
        "layers models",
    ),
    (
        "additive scores",
        "hidden = ops.tanh(query[:, :, None] + key[:, None])",
        "hidden = ops.tanh(query[:, :, None] - key[:, None])",
        "layers",
    ),
    (
        "word dropout per entry",
        "factors = ops.ones_like(inputs[..., :1])",
        "factors = ops.ones_like(inputs)",
        "layers",
    ),
    (
        "beam bound wrong way",
        "return _if_possible(best_live, bound) > finished_scores[:, -1]",
        "return _if_possible(best_live, bound) > finished_scores[:, 0]",
        "decoding",
    ),
    (
        "beam keeps inactive",
        "is_new = candidates.ends & beam.active[:, None]",
        "is_new = candidates.ends",
        "decoding",
    ),
    (
        "limit off by one",
        "is_below_limit = candidates.lengths[:, 0] < limits",
        "is_below_limit = candidates.lengths[:, 0] <= limits",
        "decoding",
    ),
    (
        "cache not reordered",
        "cache = tree.map_structure(lambda tensor: backend.take_rows(tensor, rows), cache)",
        "pass",
        "decoding models",
    ),
    (
        "forbidden off by one",
        "return ops.where(ids < num_forbidden, IMPOSSIBLE, log_probs)",
        "return ops.where(ids < num_forbidden - 1, IMPOSSIBLE, log_probs)",
        "decoding",
    ),
    (
        "blocks too few",
        "num_chosen = num_best + num_hypotheses\n",
        "num_chosen = num_best\n",
        "decoding",
    ),
    (
        "gnmt constant",
        "return ops.power((5.0 + length) / 6.0, alpha)",
        "return ops.power((6.0 + length) / 6.0, alpha)",
        "decoding",
    ),
    (
        "top_p inclusive",
        "kept = cumulative - weights < top_p * cumulative[:, -1:]",
        "kept = cumulative < top_p * cumulative[:, -1:]",
        "decoding",
    ),
    (
        "prompt place",
        'return step if self._is_one_token else step + 1 - memory["lengths"]',
        'return step if self._is_one_token else step - memory["lengths"]',
        "decoding models",
    ),
    (
        "shortlist neighbours",
        "bias = ops.where(ops.take(is_in, ids, axis=1), no_bias, IMPOSSIBLE)",
        "bias = ops.where(ops.take(is_in, ids, axis=1), no_bias, no_bias)",
        "decoding",
    ),
    (
        "r_drop weight",
        "loss += r_drop * ops.sum(weights[::2]",
        "loss += r_drop * ops.sum(weights[1::2] * 0.5",
        "backend training/test_losses.py",
    ),
    (
        "tf dropout scale",
        "scale = 256.0 / (256 - threshold)",
        "scale = 256.0 / (255 - threshold)",
        "backend layers",
    ),
    (
        "gpt limit",
        "limits = ops.minimum(limits, ops.maximum(self.max_length - lengths + 1, 0))",
        "limits = ops.minimum(limits, ops.maximum(self.max_length - lengths + 2, 0))",
        "models",
    ),
    (
        "output limit",
        'limits = 2 * ops.sum(ops.cast(is_token, "int32"), axis=1) + 10',
        'limits = 2 * ops.sum(ops.cast(is_token, "int32"), axis=1) + 9',
        "models decoding translation",
    ),
    (
        "transformer source mask",
        '"source_padding_mask": padding_mask(source_ids),',
        '"source_padding_mask": padding_mask(source_ids * 0 + 1),',
        "models",
    ),
    (
        "vit positions/class",
        "length = rows * columns + int(self.class_token)",
        "length = rows * columns + 1",
        "models",
    ),
    (
        "rnn input feeding",
        'gates = gates + first.project_rest(cache["output"], weights[0])',
        'gates = gates + first.project_rest(0.5 * cache["output"], weights[0])',
        "models",
    ),
    (
        "bert segment default",
        "segment_ids = keras.ops.zeros_like(ids)",
        "segment_ids = keras.ops.ones_like(ids)",
        "models convert",
    ),
    (
        "label smoothing share",
        "loss -= label_smoothing * tf.reduce_mean(values, axis=-1)",
        "loss -= label_smoothing * tf.reduce_max(values, axis=-1)",
        "backend training/test_losses.py",
    ),
    (
        "metric counts padding",
        'real = ops.cast(padding_mask(labels), "float32")',
        'real = ops.ones_like(ops.cast(padding_mask(labels), "float32"))',
        "training",
    ),
    (
        "noam exponent",
        "return scale * ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)",
        "return scale * ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.0)",
        "training/test_schedules.py training",
    ),
    (
        "cosine half",
        "return 0.5 * (1.0 + ops.cos(math.pi * progress))",
        "return 0.5 * (1.0 + ops.cos(math.pi * progress / 2))",
        "training/test_schedules.py training",
    ),
    (
        "clearly better",
        "clearly_better = CLEARLY_BETTER * score, negative_loss",
        "clearly_better = score / CLEARLY_BETTER, negative_loss",
        "training",
    ),
    (
        "resume index",
        "if left < 0:\n                    return epoch, index",
        "if left <= 0:\n                    return epoch, index",
        "data training",
    ),
    (
        "planned end validation",
        "seconds -= to_checkpoint * state.seconds_per_step + state.seconds_per_validation",
        "seconds -= to_checkpoint * state.seconds_per_step - state.seconds_per_validation",
        "training",
    ),
    (
        "patience",
        "if config.patience and state.validations_without_better >= config.patience:",
        "if config.patience and state.validations_without_better > config.patience:",
        "training",
    ),
    (
        "loss in patience",
        "if score > state.best_score or -negative_loss < LOSS_FALLS * state.lowest_loss:",
        "if score > state.best_score:",
        "training",
    ),
    (
        "prune keeps too few",
        "kept = {*full, *validated[-keep:], *best, self.path(state.best_step)}",
        "kept = {*full, *validated[-keep:]}",
        "runs training",
    ),
    (
        "no finite check",
        "if not all_finite([*model.weights, *rest.values()]):",
        "if False:",
        "runs training",
    ),
    (
        "batch tokens limit",
        "lambda length: batch_tokens // length, share)",
        "lambda length: 1 + batch_tokens // length, share)",
        "data",
    ),
    (
        "shuffle same each epoch",
        "rng = np.random.default_rng([self.seed, epoch])\n        offset",
        "rng = np.random.default_rng([self.seed, 0])\n        offset",
        "data",
    ),
    (
        "masked tokens choose mask",
        "may_be_chosen = (ids >= FIRST_TOKEN) & (ids != mask_id)",
        "may_be_chosen = ids >= FIRST_TOKEN",
        "data",
    ),
    (
        "windows labels",
        "counts &= (starts == 0)[:, None] | (np.arange(self.length) >= self.length - self.stride)",
        "counts &= (starts == 0)[:, None] | (np.arange(self.length) > self.length - self.stride)",
        "data",
    ),
    (
        "replacing not atomic",
        "            os.replace(partial, path)\n            flush_to_disk(path.parent)",
        "            flush_to_disk(path.parent)\n            os.replace(partial, path)",
        "files",
    ),
    (
        "missed lock",
        "            partial.mkdir()\n            lock(partial, stack)",
        "            partial.mkdir()",
        "files export runs",
    ),
    (
        "checksum chunk",
        "        while chunk := file.read(CHUNK_BYTES):\n            digest.update(chunk)",
        "        if chunk := file.read(CHUNK_BYTES):\n            digest.update(chunk)",
        "files runs export training",
    ),
    (
        "tag not kept",
        'rest = tf.strings.regex_replace(parts, f"(?s)^(?:{head})", "")',
        "rest = parts",
        "tokenizers convert",
    ),
    (
        "sentence rule",
        "parts = parts[:, :MAX_PARTS]",
        "parts = parts[:, : MAX_PARTS + 1]",
        "export",
    ),
    ("int8 axis", "axis=-1 if is_table else 0)", "axis=0 if is_table else -1)", "export"),
    (
        "int8 scale of the batch",
        "tf.reduce_max(tf.abs(x), axis=1, keepdims=True)",
        "tf.reduce_max(tf.abs(x), keepdims=True)",
        "export",
    ),
    (
        "truncated flag",
        "bool(copies[i].truncated or not has_ended)",
        "bool(copies[i].truncated and not has_ended)",
        "translation",
    ),
    (
        "n_best limit",
        "if not 1 <= n_best <= self.n_best:",
        "if not 0 <= n_best <= self.n_best:",
        "translation",
    ),
    (
        "lexicon order",
        "order = np.lexsort((-probabilities, sources))",
        "order = np.lexsort((probabilities, sources))",
        "translation",
    ),
    (
        "n-gram one short",
        "is_repeated = starts + size <= lengths[..., None]",
        "is_repeated = starts + size < lengths[..., None]",
        "decoding",
    ),
    (
        "processed log-probabilities normalized again",
        "    if are_log_probs:\n        best_logits = ops",
        "    if False:\n        best_logits = ops",
        "decoding",
    ),
    (
        "queue limit",
        "if self.num_waiting + num_rows > settings.max_queued:",
        "if self.num_waiting > settings.max_queued:",
        "serving",
    ),
    (
        "batch mixes signatures",
        "is_compatible = task.is_batchable and task.signature is first.signature",
        "is_compatible = task.is_batchable",
        "serving",
    ),
    ("version latest", "return self.all[max(found)]", "return self.all[min(found)]", "serving"),
    (
        "label checked late",
        "            if number not in self.available():\n                raise errors.not_ready(",
        "            if number not in self.all:\n                raise errors.not_ready(",
        "serving",
    ),
    ("share range", "lambda value: 0 <= value < 1)", "lambda value: 0 <= value <= 1)", "config"),
    (
        "json depth",
        "if depth > settings.max_json_depth:",
        "if depth > settings.max_json_depth + 1:",
        "serving",
    ),
    (
        "int8 kernels of another graph",
        'self._dense, [kernel.multiply for kernel in read("kernels")]',
        "self._dense, before",
        "export",
    ),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the change; none: all")
    names = set(parser.parse_args().names)
    if unknown := names - {change[0] for change in CHANGES}:
        parser.error(f"expected names of changes, received: {', '.join(sorted(unknown))}")
    changes = [change for change in CHANGES if not names or change[0] in names]
    num_noticed = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory, "copy")
        shutil.copytree(ROOT, copy, ignore=IGNORED)
        for name, right, wrong, folders in changes:
            reason = first_failure(copy, right, wrong, folders.split())
            num_noticed += reason is not None
            print(f"{name:45} {reason or 'NOT NOTICED'}", flush=True)
    print(f"noticed: {num_noticed} of {len(changes)}")


def first_failure(copy, right, wrong, folders):
    """Returns the first test that fails with the wrong text in place of the right one, or None."""
    files = (copy / "keras_transformer").rglob("*.py")
    (path,) = [path for path in files if right in path.read_text(encoding="utf-8")]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    try:
        of_file = [str(each) for each in (copy / "tests").rglob(f"test_{path.stem}.py")]
        of_folders = [str(copy / "tests" / folder) for folder in folders]
        for selected in filter(None, (of_file, of_folders)):
            command = [
                *TIME_LIMIT,
                sys.executable,
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
            ]
            process = subprocess.run(
                [*command, *selected],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
            )
            failed = [line for line in process.stdout.splitlines() if line.startswith("FAILED")]
            if failed or process.returncode not in (0, 5):
                return failed[0] if failed else f"exit code {process.returncode}"
    finally:
        path.write_text(text, encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
