"""The alignment error rate of attention heads, with and without guided alignment, on the phrases.

The grammar of the phrases knows which words translate one another. Three runs with the settings of
the quickstart are trained if they are not there: RUNS/plain, RUNS/guided with
`training.guided_alignment=lexicon`, and RUNS/last with the same in the last layer, which is no
option of a training. All are given the reference translations of the test split;
each word is aligned to the word of the source with the most attention. The best head is chosen on
the validation split. Prints the error rate of Och and Ney (2003, section 3.1,
https://aclanthology.org/J03-1002), and BLEU with greedy search.

    python benchmarks/alignment_error.py /tmp/runs [--max-steps 1200]
"""

import argparse
import itertools
import pathlib
import sys
from unittest import mock

import numpy as np
from pinned import HERE, count, write_results

TOOLS = HERE.parent / "tools"
LEXICON = ["training.guided_alignment=lexicon"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=pathlib.Path, help="directory of the two runs")
    parser.add_argument("--max-steps", type=count, default=2400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=pathlib.Path, default=HERE / "results" / "alignment-error.json"
    )
    arguments = parser.parse_args()

    import keras_transformer
    from keras_transformer.data import ParallelCorpus
    from keras_transformer.layers import decoder
    from keras_transformer.quickstart import tour
    from keras_transformer.quickstart.phrases import phrase_corpus
    from keras_transformer.training import train
    from keras_transformer.translation.evaluation import bleu
    from keras_transformer.translation.lexicon import align

    splits = phrase_corpus(tour.NUM_SENTENCES)
    gold = gold_links()
    corpora = tuple(map(ParallelCorpus.from_pairs, splits[:2]))
    steps = [f"training.max_steps={arguments.max_steps}", f"training.seed={arguments.seed}"]
    results = {"steps": arguments.max_steps, "seed": arguments.seed, "sentences": len(splits.test)}
    for name, settings in (("plain", []), ("guided", LEXICON), ("last", LEXICON)):
        layer = (lambda num_layers: num_layers - 1) if name == "last" else decoder.alignment_layer
        with mock.patch.object(decoder, "alignment_layer", layer):
            train(tour.CONFIG.override([*steps, *settings]), arguments.runs / name, corpora=corpora)
            translator = keras_transformer.load(arguments.runs / name, "best", beam_size=1)
        valid, test = (links_by_head(translator, pairs) for pairs in splits[1:])
        valid_errors = {
            head: error_rate(links, splits.valid, gold) for head, links in valid.items()
        }
        best = min(valid_errors.keys() - {None}, key=valid_errors.get)
        heads = {"mean of heads": None, f"best head {best}": best}
        if translator.alignment_head is not None:
            heads[f"guided head {translator.alignment_head}"] = translator.alignment_head
        for title, head in heads.items():
            results[f"{name}: {title}"] = error_rate(test[head], splits.test, gold)
        sources, references = map(list, zip(*splits.test, strict=True))
        results[f"{name}: BLEU"] = bleu(translator(sources), references).value
    tokenizer = translator.tokenizer
    sides = zip(*itertools.chain(*splits), strict=True)
    rows = [[row.numpy() for row in tokenizer.encode(texts)] for texts in sides]
    links = in_words(align(*rows), rows, tokenizer)[-len(splits.test) :]
    results["lexicon"] = error_rate(links, splits.test, gold)
    for name, value in results.items():
        print(f"{name:32} {value:.4g}", flush=True)
    write_results(arguments.output, results)


def gold_links():
    """Returns a dict from a pair of sentences to its `(sure, possible)` links."""
    sys.path.insert(0, str(TOOLS))
    from make_phrases import aligned_pairs

    return {(english, german): links for english, german, *links in aligned_pairs()}


def error_rate(links, pairs, gold):
    """Returns 1 - (|A & S| + |A & P|) / (|A| + |S|), for the links A of each pair."""
    num_right = num_links = 0
    for found, pair in zip(links, pairs, strict=True):
        sure, possible = gold[tuple(pair)]
        num_right += len(found & sure) + len(found & possible)
        num_links += len(found) + len(sure)
    return 1 - num_right / num_links


def links_by_head(translator, pairs):
    """Returns a dict from each head `(layer, head)`, and None, to the links of each pair."""
    from keras_transformer.decoding.batch_search import padded_rows
    from keras_transformer.special_ids import END_ID
    from keras_transformer.translation.explanation import alignment_of, explain_tokens, force

    tokenizer, model = translator.tokenizer, translator.model
    num_layers, num_heads = model.cross_heads
    heads = [None, *((i, j) for i in range(num_layers) for j in range(num_heads))]
    links = {head: [] for head in heads}
    for start in range(0, len(pairs), 64):
        rows = [
            [np.array([*ids, END_ID], "int32") for ids in tokenizer.encode(texts).to_list()]
            for texts in zip(*pairs[start : start + 64], strict=True)
        ]
        _, weights = force(model, *map(padded_rows, rows))
        for head in heads:
            looks = np.asarray(alignment_of(weights, head))
            for look, source, target in zip(looks, *rows, strict=False):
                sides = [(tokenizer.surfaces, ids) for ids in (source, target)]
                explained = explain_tokens(*sides, np.zeros(len(target)), look)
                links[head].append({(word.source, i) for i, word in enumerate(explained.words)})
    return links


def in_words(links, rows, tokenizer):
    """Returns the links of words, of links between tokens."""
    from keras_transformer.data.alignments import begins_word, word_numbers

    begins = begins_word(tokenizer)
    return [
        {(int(words[0][s]), int(words[1][t])) for s, t in found}
        for found, *ids in zip(links, *rows, strict=True)
        for words in [[word_numbers(begins, each[None])[0] for each in ids]]
    ]


if __name__ == "__main__":
    main()
