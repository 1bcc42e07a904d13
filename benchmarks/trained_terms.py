"""Whether a model learns to read terms in its source, on the phrases of the quickstart.

By `annotate.py` of docs/guides/trained-terms.md: a run with the settings of the quickstart and
three symbols is trained on text of which half the lines have terms, if RUNS/terms is not there.
Then it translates the lines of the test split that have terms: without them, with them, and with
terms that are other words of the target, as those of a user may be. Prints the share of terms that
the translations have, and BLEU with greedy search where it says something.

    python benchmarks/trained_terms.py /tmp/runs [--max-steps 1440]
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys

from pinned import HERE, count, write_results

GUIDE = HERE.parent / "docs" / "guides" / "trained-terms.md"
TERM = re.compile(r"<t> (\w+) <is> (\w+) </t>")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=pathlib.Path, help="directory of the run")
    parser.add_argument("--max-steps", type=count, default=1440)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=pathlib.Path, default=HERE / "results" / "trained-terms-phrases.json"
    )
    arguments = parser.parse_args()

    import keras_transformer
    from keras_transformer.data import ParallelCorpus
    from keras_transformer.quickstart import tour
    from keras_transformer.quickstart.phrases import phrase_corpus
    from keras_transformer.training import train
    from keras_transformer.translation.evaluation import bleu

    splits = phrase_corpus(tour.NUM_SENTENCES)
    arguments.runs.mkdir(parents=True, exist_ok=True)
    annotated = annotate(arguments.runs, [*splits.train, *splits.test])
    sides = annotated[: len(splits.train)], [german for _, german in splits.train]
    corpora = map(ParallelCorpus.from_pairs, ([*zip(*sides, strict=True)], splits.valid))
    settings = [f"training.max_steps={arguments.max_steps}", f"training.seed={arguments.seed}"]
    config = tour.CONFIG.override([*settings, "tokenizer.user_symbols=<t> <is> </t>"])
    train(config, arguments.runs / "terms", corpora=tuple(corpora))
    translator = keras_transformer.load(arguments.runs / "terms", "best", beam_size=1)

    tested = zip(annotated[len(splits.train) :], splits.test, strict=True)
    marked, pairs = zip(*((text, pair) for text, pair in tested if TERM.search(text)), strict=True)
    plain, references = map(list, zip(*pairs, strict=True))
    draw = random.Random(arguments.seed)
    forms = sorted({form for text in marked for _, form in TERM.findall(text)})
    others = [TERM.sub(lambda m: f"<t> {m[1]} <is> {draw.choice(forms)} </t>", x) for x in marked]
    results = {"steps": arguments.max_steps, "seed": arguments.seed, "sentences": len(plain)}
    without = translator(plain)
    for name, texts in (("of the reference", marked), ("another word", others)):
        found = translator(list(texts))
        results[f"{name}: terms, without"] = share_of_terms(texts, without)
        results[f"{name}: terms, with"] = share_of_terms(texts, found)
        if texts is marked:
            results["BLEU, without"] = bleu(without, references).value
            results["BLEU, with"] = bleu(found, references).value
    for name, value in results.items():
        print(f"{name:34} {value:.4g}", flush=True)
    write_results(arguments.output, results)


def annotate(directory, pairs):
    """Returns the sources of some pairs as `annotate.py` of the guide prints them."""
    (program,) = re.findall(r"```python\n(# annotate\.py\n.*?)```", GUIDE.read_text(), re.DOTALL)
    paths = [directory / name for name in ("annotate.py", "all.en", "all.de")]
    for path, text in zip(paths, (program, *map("\n".join, zip(*pairs, strict=True))), strict=True):
        path.write_text(text + "\n", encoding="utf-8")
    command = [sys.executable, *map(str, paths)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def share_of_terms(texts, translations):
    """Returns how many of the forms that texts ask for are words of their translations."""
    pairs = zip(texts, translations, strict=True)
    found = [
        form in re.findall(r"\w+", said) for text, said in pairs for _, form in TERM.findall(text)
    ]
    return sum(found) / len(found)


if __name__ == "__main__":
    main()
