"""Translates with one export in its own process, for `formats.py`; prints a line of JSON.

Times are those of the processor. With one thread they are the same on a busy machine.
"""

import argparse
import importlib.util
import json
import pathlib
import runpy
import time

from decoding_side import in_batches
from pinned import peak_megabytes

WARM_UP_SENTENCES = 128


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("version", type=pathlib.Path, help="directory of one version of an export")
    parser.add_argument("source", type=pathlib.Path, help="text, one sentence a line")
    parser.add_argument("--alone", type=int, required=True, help="sentences translated alone")
    arguments = parser.parse_args()
    lines = arguments.source.read_text().splitlines()
    start = time.process_time()
    is_saved_model = (arguments.version / "saved_model.pb").exists()
    translate = (saved_model if is_saved_model else ctranslate2)(arguments.version)
    translate(lines[:1])
    loading = time.process_time() - start
    in_batches(translate, lines[:WARM_UP_SENTENCES], 64)
    start = time.process_time()
    translations = in_batches(translate, lines, 64)
    together = (time.process_time() - start) / len(lines)
    alone = lines[: arguments.alone]
    in_batches(translate, alone[:10], 1)
    start = time.process_time()
    in_batches(translate, alone, 1)
    result = {
        "seconds_of_loading": loading,
        "milliseconds_64": 1000 * together,
        "milliseconds_1": 1000 * (time.process_time() - start) / len(alone),
        "megabytes": peak_megabytes(),
        "translations": translations,
    }
    print(json.dumps(result))


def saved_model(version):
    """In a session of one thread without XLA, as on TensorFlow Serving."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, registers the tokenizers' operations

    from keras_transformer.export.serving_session import disable_xla

    disable_xla()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(version))
    signature = meta_graph.signature_def["serving_default"]
    text, translation = signature.inputs["text"].name, signature.outputs["translation"].name
    call = session.make_callable(translation, feed_list=[text])
    return lambda lines: [answer.decode() for answer in call(lines)]


def ctranslate2(version):
    """By the program of the package, without the package, in one thread."""
    (package,) = importlib.util.find_spec("keras_transformer").submodule_search_locations
    program = runpy.run_path(pathlib.Path(package, "translation", "ctranslate2_search.py"))
    settings = json.loads((version / "assets.extra/keras_transformer.json").read_text())
    search = program["CTranslate2Search"](version, settings, num_threads=1)
    return lambda lines: [best[0] for (best,) in search.translate(lines)]


if __name__ == "__main__":
    main()
