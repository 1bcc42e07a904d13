"""Terms taken from the references of Multi30k's test text, with and without `terms`.

For each sentence one word of the source and a word of the reference that often translates it, by
their counts in the training text: if there is one, a word that the model does not say by itself.
Prints how many translations have the term, BLEU, and the seconds of both sides, which translate one
sentence at a time. The random pairs depend on the seed alone.

    python benchmarks/terms.py runs/multi30k

In `transformers`, `force_words_ids` has moved to code on the Hub with release 5, which is not here.
"""

import argparse
import collections
import pathlib
import random
import re
import time

import sacrebleu
from pinned import HERE, count, multi30k, write_results

WORD = re.compile(r"\w{4,}")
LEAST_DICE = 0.2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", help="a run directory, trained on raw Multi30k")
    parser.add_argument("--sentences", type=count, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "terms.json")
    arguments = parser.parse_args()

    import keras_transformer
    from keras_transformer.files.text import iterate_lines
    from keras_transformer.translation.terminology import Terminology

    train = [iterate_lines(multi30k() / f"train.{side}.gz") for side in ("en", "de")]
    test = [
        list(iterate_lines(multi30k() / f"test_2016_flickr.{side}.gz")) for side in ("en", "de")
    ]
    sources, references = (side[: arguments.sentences] for side in test)
    dice = dice_of(zip(*train, strict=True))
    translator = keras_transformer.load(arguments.run)
    translator.translate(sources[:2], terms={"a": "Mann"})  # compiles
    plain, plain_seconds = timed(lambda i: translator(sources[i]), len(sources))
    draw = random.Random(arguments.seed)
    terms = [term_of(*each, dice, draw) for each in zip(sources, references, plain, strict=True)]

    def steered(i):
        ((best,),) = translator.translate([sources[i]], terms=terms[i] or None)
        return best.text

    found, seconds = timed(steered, len(sources))
    result = {"sentences": len(sources), "with a term": sum(map(bool, terms))}
    for name, texts, taken in (("plain", plain, plain_seconds), ("terms", found, seconds)):
        rows = [row for row in zip(terms, sources, texts, strict=True) if row[0]]
        met = sum(not Terminology(term).not_met(source, text) for term, source, text in rows)
        bleu = sacrebleu.corpus_bleu(texts, [references])
        result[name] = {"met": met / len(rows), "BLEU": bleu.score, "seconds": taken}
        print(
            f"{name:6} {met / len(rows):7.1%} met  BLEU {bleu.score:.2f}  {taken:.1f} s", flush=True
        )
    print(f"{seconds / plain_seconds:.2f} times the seconds")
    write_results(arguments.output, result)


def dice_of(pairs):
    """Returns a function of two words: how often they stand in a pair together, from 0 to 1."""
    together, alone = collections.Counter(), collections.Counter()
    for source, target in pairs:
        words = [set(WORD.findall(text)) for text in (source, target)]
        alone.update(("source", word) for word in words[0])
        alone.update(("target", word) for word in words[1])
        together.update((a, b) for a in words[0] for b in words[1])
    return lambda a, b: 2 * together[a, b] / (alone["source", a] + alone["target", b] or 1)


def term_of(source, reference, translation, dice, draw):
    """Returns a dict of one term, empty if no word of the reference is likely for one."""
    pairs = [
        (a, b)
        for a in sorted(set(WORD.findall(source)))
        for b in sorted(set(WORD.findall(reference)))
        if dice(a, b) > LEAST_DICE
    ]
    unsaid = [(a, b) for a, b in pairs if not re.search(rf"\b{b}\b", translation)]
    return dict([draw.choice(unsaid or pairs)]) if pairs else {}


def timed(translate, number):
    start = time.perf_counter()
    texts = [translate(i) for i in range(number)]
    return texts, time.perf_counter() - start


if __name__ == "__main__":
    main()
