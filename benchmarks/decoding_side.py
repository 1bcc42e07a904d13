"""Runs the decoding benchmark for one library in its own process; prints a line of JSON.

Times are from string to string, including tokenization, with the same weights in every library.
`benchmarks/decoding.py` calls it.
"""

import argparse
import json
import pathlib
import time

from pinned import peak_megabytes

WARM_UP_SENTENCES = 128

LENGTH_PENALTY = 0.0
"""The one value at which all sides look for the same: the most probable translation. Elsewhere ours
divides its log-probability by ((5 + n) / 6)^alpha, the peers theirs by n^alpha."""

FORBIDDEN = 0, 1, 2
"""The ids of padding, unknown and start, which ours never chooses."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("folder", type=pathlib.Path, help="with the models and source.txt")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--beam-size", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--sentences", type=int, required=True)
    arguments = parser.parse_args()
    lines = (arguments.folder / "source.txt").read_text().splitlines()[: arguments.sentences]
    translate = SIDES[arguments.side](arguments.folder, arguments.beam_size, arguments.threads)
    warm_up = lines[:WARM_UP_SENTENCES] if arguments.batch_size > 1 else lines[:10]
    in_batches(translate, warm_up, arguments.batch_size)
    start = time.perf_counter()
    translations = in_batches(translate, lines, arguments.batch_size)
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {"seconds": seconds, "megabytes": peak_megabytes(), "translations": translations}
        )
    )


def in_batches(translate, lines, batch_size):
    """Translates similar lengths together, the longest first; returns translations in order."""
    order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    answers = [None] * len(lines)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        for i, answer in zip(batch, translate([lines[i] for i in batch]), strict=True):
            answers[i] = answer
    return answers


def max_tokens(longest):
    """Returns the maximum tokens of a batch, including the end token; ours has one per sentence."""
    return min(256, 2 * longest + 10)


def export_name(beam_size, kind=""):
    """Returns the name of the directory with our export; `kind` is "", "-shortlist" or "-int8"."""
    return f"export-{beam_size}{kind}"


def exported(folder, beam_size, threads, kind=""):
    """Our SavedModel, in a session without XLA, as on TensorFlow Serving."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, registers the tokenizers' operations

    from keras_transformer.export.serving_session import disable_xla

    disable_xla()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    path = folder / export_name(beam_size, kind) / "1"
    meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    signature = meta_graph.signature_def["serving_default"]
    text, translation = signature.inputs["text"].name, signature.outputs["translation"].name
    call = session.make_callable(translation, feed_list=[text])
    return lambda lines: [answer.decode() for answer in call(lines)]


def exported_with_shortlist(folder, beam_size, threads):
    return exported(folder, beam_size, threads, kind="-shortlist")


def exported_int8(folder, beam_size, threads):
    return exported(folder, beam_size, threads, kind="-int8")


def ctranslate2(folder, beam_size, threads, compute_type="float32", shortlist=False, device="cpu"):
    import ctranslate2
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    directory = folder / f"ctranslate2{'-shortlist' if shortlist else ''}"
    translator = ctranslate2.Translator(
        str(directory), device, compute_type=compute_type, intra_threads=threads
    )

    forbidden = [[processor.id_to_piece(i)] for i in FORBIDDEN]

    def translate(lines):
        rows = processor.encode(lines, out_type=str)
        found = translator.translate_batch(
            rows,
            beam_size=beam_size,
            length_penalty=LENGTH_PENALTY,
            max_decoding_length=max_tokens(max(map(len, rows))),
            suppress_sequences=forbidden,
            use_vmap=shortlist,
        )
        return processor.decode([result.hypotheses[0] for result in found])

    return translate


def ctranslate2_int8(folder, beam_size, threads):
    return ctranslate2(folder, beam_size, threads, compute_type="int8")


def ctranslate2_with_shortlist(folder, beam_size, threads):
    return ctranslate2(folder, beam_size, threads, shortlist=True)


def hugging_face(folder, beam_size, threads, device="cpu"):
    """In bfloat16 on a GPU, which `device="auto"` takes where there is one."""
    import sentencepiece
    import torch

    torch.set_num_threads(threads)
    processor = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
    model = torch.load(folder / "hugging_face.pt", weights_only=False)
    if device == "auto" and torch.cuda.is_available():
        device = "cuda"
        model.to(device, torch.bfloat16)

    @torch.no_grad()
    def translate(lines):
        rows = [[*row, 3] for row in processor.encode(lines)]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows]).to(model.device)
        found = model.generate(
            input_ids=ids,
            attention_mask=(ids != 0).long(),
            num_beams=beam_size,
            do_sample=False,
            length_penalty=LENGTH_PENALTY,
            early_stopping=False,  # stop when no unfinished hypothesis can win
            max_new_tokens=max_tokens(width - 1),
            suppress_tokens=list(FORBIDDEN),
        )
        return processor.decode([[i for i in row if i > 3] for row in found.tolist()])

    return translate


SIDES = {
    "keras_transformer": exported,
    "keras_transformer, shortlist": exported_with_shortlist,
    "keras_transformer int8": exported_int8,
    "CTranslate2": ctranslate2,
    "CTranslate2, shortlist": ctranslate2_with_shortlist,
    "CTranslate2 int8": ctranslate2_int8,
    "Hugging Face": hugging_face,
}

if __name__ == "__main__":
    main()
