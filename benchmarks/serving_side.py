"""Translates a file by an export in two ways, in as many threads as there are cores.

In batches of 64 of similar lengths, as `keras-transformer translate` does, and in batches of 32 in
the order of the file. A server with 64 clients and two cores has no other batches than these.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import time

PASSES = 3
ROWS = 32


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    arguments = parser.parse_args()

    from keras_transformer.cli import console

    console.start_keras(to_search=True)
    from keras_transformer.translation.loading import load

    translator = load(arguments.export)
    lines = arguments.text.read_text().splitlines()
    cores = len(os.sched_getaffinity(0))
    batches = [lines[start : start + ROWS] for start in range(0, len(lines), ROWS)]

    def in_the_order_of_the_file():
        with concurrent.futures.ThreadPoolExecutor(cores) as threads:
            list(threads.map(translator.translate, batches))

    found = {
        "sentences": len(lines),
        "seconds": median_seconds(lambda: translator.translate(lines)),
        "seconds_in_order": median_seconds(in_the_order_of_the_file),
    }
    print(json.dumps(found))


def median_seconds(function):
    function()  # warm-up
    seconds = []
    for _ in range(PASSES):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
