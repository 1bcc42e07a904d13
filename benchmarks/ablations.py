"""Measures what each setting of a training gains on little text: one change of `tiny` at a time.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/ablations.py --runs RUNS --steps 9000
    KERAS_TRANSFORMER_DATA=DATA python benchmarks/ablations.py --runs RUNS --minutes 60
    KERAS_TRANSFORMER_DATA=DATA python benchmarks/ablations.py --runs RUNS --steps 3000 \\
        --pairs 9667 --set training.warmup_steps=500 training.checkpoint_every=150

trains Multi30k en-de, lowercased and tokenized, once for each change, in a directory below RUNS.
With a third of the pairs, a third of the steps reads each pair as often, so that what prevents
learning by heart shows its effect in a third of the time; the warm-up and the distance between
checkpoints shrink with it. Then 5,000 of the other pairs give a score in which chance has a smaller
part than in that of the 1,014 pairs of the validation text: once with the default length penalty,
and once with the one that the validation text chooses, because some changes make translations
shorter. The test text is for the recipe that is chosen in the end. Each result is written to
`results/ablations-*.json` as soon as it is measured. Started again, the program goes on with the
changes that are left, from the last checkpoint of a run that was stopped. Runs of equal minutes
compare only if the machine had nothing else to do.
"""

import argparse
import json
import pathlib
import shlex
import sys

import keras
from pinned import (
    HERE,
    count,
    machine,
    multi30k,
    positive,
    read_results,
    some_pairs,
    word_ratio,
    write_results,
)

import keras_transformer
from keras_transformer.cli import console
from keras_transformer.config import Config
from keras_transformer.data import ParallelCorpus
from keras_transformer.files.atomic import replacing
from keras_transformer.training import tune_decoding
from keras_transformer.training.train import train_task
from keras_transformer.training.translation_task import TranslationTask
from keras_transformer.translation.evaluation import bleu

NUM_UNREAD = 5_000  # pairs to score that no run has read
LATE = "batches of twice the size after two thirds of the steps"
BEAM_SIZE = 5
LENGTH_PENALTIES = (0.6, 1.0, 1.5, 2.0)

BASE = ["training.schedule=linear", "training.patience=0"]
"""What every run has, beside the preset `tiny`: a learning rate that falls to zero at the end."""

TITLES = {
    "bleu_greedy": "BLEU, greedy",
    "bleu": "BLEU",
    "bleu_tuned": "BLEU, tuned",
    "length_penalty": "length penalty",
    "bleu_unread": "BLEU, unread pairs",
    "length_unread": "length",
    "bleu_unread_tuned": "BLEU, unread pairs, tuned",
    "length_unread_tuned": "length",
}
"""The columns of the table, after the training's own."""

TRANSLATED = {
    "text translated forward": ["forward"],
    "text translated back": ["back"],
    "text translated both ways": ["forward", "back"],
}
"""Changes that add translations of the training text, and the directions of these."""

CHANGES = {
    "tiny": [],
    "tiny, another seed": ["training.seed=2"],
    "R-Drop 5": ["training.r_drop=5.0"],
    "R-Drop 5, batches of 2,048 tokens": ["training.r_drop=5.0", "training.batch_tokens=2048"],
    "batches of 2,048 tokens": ["training.batch_tokens=2048"],
    "batches of 8,192 tokens": ["training.batch_tokens=8192"],
    LATE: ["training.max_steps={late_steps}"],
    "inverse square root": ["training.schedule=inverse_square_root"],
    "cosine decay": ["training.schedule=cosine"],
    "moving average of the weights": ["training.ema=0.999"],
    "distillation from tiny": ["training.distill_from={runs}/tiny"],
    "peak of 0.002": ["training.peak_learning_rate=0.002"],
    "peak of 0.006": ["training.peak_learning_rate=0.006"],
    "warm-up of 1,500 steps": ["training.warmup_steps=1500"],
    "subword sampling 0.1": ["tokenizer.sampling=0.1"],
    "unigram tokens": ["tokenizer.model_type=unigram"],
    "unigram tokens, sampling 0.2": ["tokenizer.model_type=unigram", "tokenizer.sampling=0.2"],
    "vocabulary of 4,000": ["tokenizer.vocab_size=4000"],
    "two vocabularies of 6,000": ["tokenizer.shared=false", "tokenizer.vocab_size=6000"],
    "dropout 0.2": ["model.dropout=0.2"],
    "dropout 0.4": ["model.dropout=0.4"],
    "attention dropout 0.1": ["model.attention_dropout=0.1"],
    "feed-forward dropout 0.1": ["model.ff_dropout=0.1"],
    "word dropout 0.1": ["model.word_dropout=0.1"],
    "no label smoothing": ["training.label_smoothing=0.0"],
    "label smoothing 0.2": ["training.label_smoothing=0.2"],
    "post-norm": ["model.normalize_first=false"],
    "post-norm, peak of 0.001": [
        "model.normalize_first=false",
        "training.peak_learning_rate=0.001",
    ],
    "8 layers of width 96": ["model.num_layers=8", "model.d_model=96", "model.ff_dim=192"],
    "width 256": ["model.d_model=256", "model.ff_dim=512"],
    "float32": ["training.mixed_precision=null"],
    "post-norm, initial weights of DeepNorm": ["model.normalize_first=false"],
    **dict.fromkeys(TRANSLATED, ["tokenizer.model={runs}/tiny/tokenizer/tokenizer.model"]),
}


class DeepNormTask(TranslationTask):
    """Begins with the weights of DeepNorm (Wang et al., 2022, https://arxiv.org/abs/2203.00555).

    DeepNorm is LayerNorm(alpha x + Sublayer(x)) with small initial weights. LayerNorm(x +
    Sublayer(x) / alpha) is the same, so 1 / alpha is part of the sublayer's last kernel here. After
    the start it is not the same: Adam changes this kernel alpha times as much.
    """

    def build_model(self, model_class):
        model = super().build_model(model_class)
        stacks = model.encoder.blocks, model.decoder.blocks
        for blocks, factors in zip(stacks, deep_norm_factors(*map(len, stacks)), strict=True):
            use_deep_norm(blocks, *factors)
        return model


def deep_norm_factors(num_encoder, num_decoder):
    """Returns `(alpha, beta)` of the blocks of the encoder and of the decoder."""
    power = (num_encoder**4 * num_decoder) ** (1 / 16)
    return (0.81 * power, 0.87 / power), ((3 * num_decoder) ** 0.25, (12 * num_decoder) ** -0.25)


def use_deep_norm(blocks, alpha, beta):
    """Scales the initial weights of post-norm blocks, all but those of queries and keys."""
    for block in blocks:
        attentions = [block.self_attention, getattr(block, "cross_attention", None)]
        for attention in filter(None, attentions):
            scale(attention.value_projection.kernel, beta)
            scale(attention.output_projection.kernel, beta / alpha)
        scale(block.feed_forward.inner.kernel, beta)
        scale(block.feed_forward.outer.kernel, beta / alpha)


def scale(variable, factor):
    variable.assign(factor * variable.value)


class LateBatchesTask(TranslationTask):
    """Doubles the batches late, while the rate falls.

    Smith et al., 2018 (https://arxiv.org/abs/1711.00489), do it instead of lowering the rate. The
    last third of the steps reads as much text as two thirds would with the batches before, so three
    quarters of the steps of `tiny` read the same text.
    """

    def prepare(self, config, *args):
        super().prepare(config, *args)
        batches, tokens, plan = self.batches, self.batches.batch_tokens, self.batches._plan
        first = round(config.training.max_steps * 2 / 3 / len(batches))

        def plan_section(epoch, section):
            batches.batch_tokens = tokens if epoch < first else 2 * tokens
            return plan(epoch, section)

        batches._plan = plan_section


TASKS = {
    LATE: LateBatchesTask,
    "post-norm, initial weights of DeepNorm": DeepNormTask,
}
"""Changes that no setting makes."""


def measured(name, data, arguments):
    """Trains one change of `tiny`, or goes on training it, and returns what was measured."""
    keras.backend.clear_session()
    limits = {"max_steps": arguments.steps, "max_minutes": arguments.minutes}
    limits = [f"training.{key}={value}" for key, value in limits.items() if value is not None]
    places = {
        "runs": shlex.quote(str(arguments.runs)),
        "late_steps": 3 * (arguments.steps or 0) // 4,
    }
    changes = [change.format(**places) for change in CHANGES[name]]
    tiny = Config.from_preset("tiny").override([*BASE, *limits, *arguments.set])
    config = tiny.override(changes)
    whole, valid = (
        ParallelCorpus.from_files(*(data / f"{split}.lc.norm.tok.{x}.gz" for x in ("en", "de")))
        for split in ("train", "val")
    )
    pairs = some_pairs(whole, arguments.pairs)
    if name in TRANSLATED:
        pairs = with_translations(TRANSLATED[name], pairs, valid, tiny, arguments.runs)
    corpora = ParallelCorpus.from_pairs(pairs), valid
    task_class = TASKS.get(name, TranslationTask)
    run = arguments.runs / name.replace(" ", "-").replace(",", "")
    metrics = train_task(task_class(corpora), config, run)

    translator = keras_transformer.load(run, beam_size=BEAM_SIZE, length_penalty=0.6)
    score, _ = score_of(translator, valid)
    tuned = tune_decoding(run, valid, (BEAM_SIZE,), LENGTH_PENALTIES, tokenize="none")
    unread = {}
    if arguments.pairs is not None:
        others = ParallelCorpus.from_pairs(some_pairs(whole, NUM_UNREAD, start=arguments.pairs))
        for key, each in (("", translator), ("_tuned", keras_transformer.load(run))):
            found, unread[f"length_unread{key}"] = score_of(each, others)
            unread[f"bleu_unread{key}"] = found.value
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "processor": machine()["processor"],
        "changes": CHANGES[name],
        "parameters": translator.model.count_params(),
        "steps": last["step"],
        "minutes": last["minutes"],
        "perplexity": metrics["val_perplexity"],
        "bleu_greedy": metrics["val_bleu"],
        "bleu": score.value,
        "bleu_tuned": tuned.bleu,
        "length_penalty": tuned.decoding.length_penalty,
        **unread,
        "signature": score.signature,
    }


def with_translations(directions, pairs, valid, config, runs):
    """Returns pairs and their translations, as second targets and second sources.

    This is data diversification (Nguyen et al., 2020, https://arxiv.org/abs/1911.01986). The run of
    `tiny` translates forward, and one of the other direction back, which is trained here.
    Translations are kept in a file, so that a training that goes on has the same text. With them,
    each pair is read less often in the same number of steps.
    """
    sources, targets = zip(*pairs, strict=True)
    translated = list(pairs)
    if "forward" in directions:
        path = runs / f"{len(pairs)}-forward.json"
        translated += zip(sources, translations(runs / "tiny", sources, path), strict=True)
    if "back" in directions:
        run, path = runs / "back", runs / f"{len(pairs)}-back.json"
        if not path.exists():
            sides = (targets, sources), (valid.target, valid.source)
            corpora = tuple(ParallelCorpus.from_pairs(zip(*each, strict=True)) for each in sides)
            train_task(TranslationTask(corpora), config, run)
        translated += zip(translations(run, targets, path), targets, strict=True)
    return translated


def translations(run, texts, path):
    """Returns what a run makes of texts, which a file keeps."""
    if not path.exists():
        translator = keras_transformer.load(run, beam_size=BEAM_SIZE, length_penalty=1.0)
        with replacing(path) as partial:
            partial.write_text(json.dumps(translator(list(texts))))
    return json.loads(path.read_text())


def score_of(translator, corpus):
    """Returns the BLEU score of tokenized text, and its words beside those of the reference."""
    translations = translator(corpus.source)
    score = bleu(translations, corpus.target, tokenize="none", hints=False)
    return score, word_ratio(translations, corpus.target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="directory of the runs")
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--steps", type=count, help="steps of each run")
    limit.add_argument("--minutes", type=positive, help="minutes of each run")
    parser.add_argument("--pairs", type=count, help="training pairs (default: all)")
    parser.add_argument("--only", nargs="+", choices=CHANGES, metavar="NAME")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="group.key=value", help="settings of all runs"
    )
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    names = arguments.only or [name for name in CHANGES if arguments.steps or name != LATE]
    if LATE in names and arguments.steps is None:
        parser.error(f"{LATE!r} is planned in steps: give --steps instead of --minutes")
    data = multi30k() / "tok"

    budget = (
        f"{arguments.steps} steps"
        if arguments.steps is not None
        else f"{arguments.minutes:g} minutes"
    )
    settings = {"budget": budget, "pairs": arguments.pairs, "set": arguments.set}
    file = f"ablations-{budget.replace(' ', '-')}.json"
    path = arguments.output or HERE / "results" / file
    results = read_results(path, settings)
    print("| change | minutes | steps | perplexity", *TITLES.values(), sep=" | ", end=" |\n")
    print("|---" * (4 + len(TITLES)) + "|", flush=True)
    for name in names:
        if name not in results:
            results[name] = measured(name, data, arguments)
            write_results(path, {**settings, "results": results})
        row = results[name]
        cells = [name, f"{row['minutes']:.0f}", f"{row['steps']:,}", f"{row['perplexity']:.2f}"]
        cells += [f"{row[key]:.2f}" if key in row else "" for key in TITLES]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(console.run(main))
