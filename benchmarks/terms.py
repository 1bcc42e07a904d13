"""Terms taken from the references of Multi30k's test text, with and without `terms`.

For each sentence one word of the source and a word of the reference that often translates it, by
their counts in the training text: if there is one, a word that the model does not say by itself.
Prints how many translations have the term, BLEU, and the seconds of the processor of each row,
which translates one sentence at a time. The random pairs depend on the seed alone. `--trained` adds
a run that was trained to read terms in its source, as docs/guides/trained-terms.md shows.

    python benchmarks/terms.py runs/multi30k --trained runs/terms

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
    parser.add_argument("--trained", help="a run that was trained with terms in its source")
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
    plain = timed(translator, sources)
    draw = random.Random(arguments.seed)
    texts = zip(sources, references, plain[0], strict=True)
    terms = [term_of(*each, dice, draw) for each in texts]
    rows = {"plain": plain, "terms": timed(translator, sources, terms)}
    if arguments.trained:
        trained = keras_transformer.load(arguments.trained)
        rows["trained, without terms"] = timed(trained, sources)
        annotated = [with_term(*each) for each in zip(sources, terms, strict=True)]
        rows["trained, terms in the source"] = timed(trained, annotated)
        rows["trained, terms"] = timed(trained, sources, terms)

    result = {"sentences": len(sources), "with a term": sum(map(bool, terms))}
    for name, (translations, seconds) in rows.items():
        met = sum(
            not Terminology(term).not_met(source, text)
            for term, source, text in zip(terms, sources, translations, strict=True)
            if term
        )
        share = met / result["with a term"]
        bleu = sacrebleu.corpus_bleu(translations, [references]).score
        result[name] = {"met": share, "BLEU": bleu, "seconds": seconds}
        print(f"{name:28} {share:7.1%} met  BLEU {bleu:.2f}  {seconds:.1f} s", flush=True)
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


def with_term(source, term):
    """Returns a source in which the words of its term are followed by what they shall become."""
    for word, form in term.items():
        inline = f">>term<< {word} >>term<< {form} >>term<<"
        source = ">>term<< " + re.sub(rf"\b{word}\b", inline, source)
    return source


def timed(translator, sources, terms=None):
    """Returns the translation of each source, and the seconds of the processor."""
    calls = [
        ([source], term or None)
        for source, term in zip(sources, terms or [None] * len(sources), strict=True)
    ]
    for texts, term in calls[:8]:
        translator.translate(texts, terms=term)  # compiles
    start = time.process_time()
    found = [translator.translate(texts, terms=term)[0][0].text for texts, term in calls]
    return found, time.process_time() - start


if __name__ == "__main__":
    main()
