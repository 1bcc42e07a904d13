"""Translates a file by an export in batches of 64, as `keras-transformer translate` does."""

import argparse
import json
import pathlib
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    arguments = parser.parse_args()

    from keras_transformer import console

    console.start_keras(to_search=True)
    from keras_transformer.export import load

    translator = load(arguments.export)
    lines = arguments.text.read_text().splitlines()
    translator.translate(lines)  # warm-up
    seconds, passes = [], 3
    for _ in range(passes):
        start = time.perf_counter()
        translator.translate(lines)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"sentences": len(lines), "seconds": sorted(seconds)[passes // 2]}))


if __name__ == "__main__":
    main()
