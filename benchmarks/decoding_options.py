"""What each option of the search does to BLEU and to the time, on the test text of Multi30k.

All options translate the same sentences with one run, in one process. After a first round that
compiles, each round goes through all of them, so that a busy machine slows all alike. Prints BLEU
and the median of the processor's seconds, beside those of the default search.

    python benchmarks/decoding_options.py runs/multi30k
"""

import argparse
import functools
import pathlib
import statistics
import time

import sacrebleu
from pinned import HERE, count, multi30k, write_results

OPTIONS = {
    "beam of 4, length penalty 0.6": {},
    "--beam-size 1": {"beam_size": 1},
    "--beam-size 8": {"beam_size": 8},
    "--length-penalty 0": {"length_penalty": 0.0},
    "--length-penalty 1": {"length_penalty": 1.0},
    "decoding.length_normalization=length": {"length_normalization": "length"},
    "decoding.keep_beam_full=true": {"keep_beam_full": True},
    "--no-repeat-ngram 3": {"no_repeat_ngram": 3},
    "--repetition-penalty 1.2": {"repetition_penalty": 1.2},
    "--min-length 10": {"min_length": 10},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", help="a run directory, trained on raw Multi30k")
    parser.add_argument("--sentences", type=count, default=1000)
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--only", nargs="+", help="these options beside the first, by their names")
    parser.add_argument(
        "--output", type=pathlib.Path, default=HERE / "results" / "decoding-options.json"
    )
    arguments = parser.parse_args()

    import keras_transformer
    from keras_transformer.files.text import iterate_lines
    from keras_transformer.translation.markup import Markup
    from keras_transformer.translation.markup_translator import MarkupTranslator
    from keras_transformer.translation.reranking import least_risk

    sources, references = (
        list(iterate_lines(multi30k() / f"test_2016_flickr.{side}.gz"))[: arguments.sentences]
        for side in ("en", "de")
    )
    load = functools.partial(keras_transformer.load, arguments.run)
    options = {name: load(**settings) for name, settings in OPTIONS.items()}
    translator = options[next(iter(OPTIONS))]
    begun = [" ".join(reference.split()[:2]) + " " for reference in references]

    def explained(texts):
        translations = translator(texts)
        translator.explain(texts, translations)
        return translations

    options["--prefixes, two words of the reference"] = lambda texts: [
        best.text for (best,) in translator.translate(texts, prefixes=begun)
    ]
    options["--json or --alignments"] = explained
    options["--markup, without any"] = MarkupTranslator(translator)
    options["--copy-unknown, without any"] = MarkupTranslator(translator, Markup(tags=False), True)
    options["--sample"] = translator.sample
    if pathlib.Path(arguments.run, "lexicon.npz").exists():
        options["--shortlist 50"] = load(shortlist=50)

    def of_samples(texts):
        ((*answers,),) = translator.sample_chunks([texts], 20, temperature=0.7)
        return [least_risk(samples).text for samples in answers]

    options["--mbr 20 --temperature 0.7"] = of_samples
    if arguments.only:
        first, *names = options
        options = {
            name: options[name] for name in (first, *names) if name in (first, *arguments.only)
        }

    seconds = {name: [] for name in options}
    bleu = {}
    for repeat in range(arguments.repeats + 1):
        for name, translate in options.items():
            start = time.process_time()
            translations = translate(sources)
            if repeat:  # the first round compiles
                seconds[name].append(time.process_time() - start)
            bleu[name] = sacrebleu.corpus_bleu(translations, [references]).score
    result = {
        name: {"BLEU": bleu[name], "seconds": statistics.median(taken)}
        for name, taken in seconds.items()
    }
    first = result[next(iter(result))]
    for name, found in result.items():
        change, ratio = found["BLEU"] - first["BLEU"], found["seconds"] / first["seconds"]
        print(f"{name:42} BLEU {found['BLEU']:.2f} ({change:+.2f})  {ratio:.2f} times the seconds")
    print(f"{first['seconds']:.1f} s of the processor for {len(sources)} sentences with the first")
    write_results(arguments.output, result)


if __name__ == "__main__":
    main()
