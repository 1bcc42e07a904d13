"""Terms taken from the references of Multi30k's test text, with and without `terms`.

For each sentence one word of the source and a word of the reference that often translates it, by
their counts in the training text: if there is one, a word that the model does not say by itself.
Prints how many translations have the term, BLEU, and the seconds of the processor of each row,
which translates one sentence at a time. The random pairs depend on the seed alone. `--trained` adds
a run that was trained to read terms in its source, as docs/guides/trained-terms.md shows.

    python benchmarks/terms.py runs/multi30k --trained runs/terms

`--force-words` adds `force_words_ids` of Hugging Face, with the same weights and width of the beam.
It needs PyTorch, and in an environment of its own `pip install "transformers<4.50"`: with release
5, this search has moved to code on the Hub.

    taskset -c 1 python benchmarks/terms.py runs/multi30k --sentences 100 --force-words \
        --output benchmarks/results/force-words.json
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
    parser.add_argument(
        "--force-words", action="store_true", help="compare with force_words_ids of transformers 4"
    )
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
    plain = timed(ours(translator), sources)
    draw = random.Random(arguments.seed)
    texts = zip(sources, references, plain[0], strict=True)
    terms = [term_of(*each, dice, draw) for each in texts]
    rows = {"plain": plain, "terms": timed(ours(translator), sources, terms)}
    if arguments.force_words:
        peer = hugging_face(translator)
        rows["transformers"] = timed(peer, sources)
        rows["transformers, force_words_ids"] = timed(peer, sources, terms)
    if arguments.trained:
        trained = ours(keras_transformer.load(arguments.trained))
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
        source = re.sub(rf"\b{word}\b", f"<t> {word} <is> {form} </t>", source)
    return source


def ours(translator):
    """Returns a function that translates a source with its terms, a dict."""

    def translate(source, terms):
        return translator.translate([source], terms=terms or None)[0][0].text

    return translate


def hugging_face(translator):
    """Returns the same function of `transformers`, for the same weights."""
    import peer_models
    import torch
    from decoding_side import FORBIDDEN, max_tokens

    from keras_transformer.decoding.terms import TermVocabulary
    from keras_transformer.export.hugging_face import GNMT_SLOPE
    from keras_transformer.special_ids import END_ID

    torch.set_num_threads(1)
    model = peer_models.hugging_face(translator.model)
    decoding, tokenizer = translator.decoding, translator.tokenizer

    @torch.no_grad()
    def translate(source, terms):
        (ids,) = tokenizer.encode([source]).to_list()
        forms = tokenizer.encode(list(terms.values())).to_list() if terms else None
        found = model.generate(
            input_ids=torch.tensor([[*ids, END_ID]]),
            force_words_ids=forms,
            num_beams=TermVocabulary.BEAM_SIZE if terms else decoding.beam_size,
            do_sample=False,
            length_penalty=GNMT_SLOPE * decoding.length_penalty,
            early_stopping=False,
            max_new_tokens=max_tokens(len(ids)),
            suppress_tokens=list(FORBIDDEN),
        )
        row = [i for i in found[0].tolist() if i > END_ID]
        return tokenizer.decode([row]).numpy()[0].decode()

    return translate


def timed(translate, sources, terms=None):
    """Returns the translation of each source, and the seconds of the processor."""
    calls = list(zip(sources, terms or [{}] * len(sources), strict=True))
    for call in calls[:8]:
        translate(*call)  # compiles
    start = time.process_time()
    found = [translate(*call) for call in calls]
    return found, time.process_time() - start


if __name__ == "__main__":
    main()
