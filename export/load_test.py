"""Measures a server's sentences per second, and their latency, for a number of clients.

    python load_test.py FILE [--url URL] [--clients 64] [--seconds 30]

Each client sends a line of FILE, waits for its translation, and sends the next. Needs `requests`.
"""

import argparse
import collections
import gzip
import itertools
import json
import pathlib
import threading
import time

import requests


def run_client(url, lines, until, answers):
    """Appends (status, seconds) of each request to `answers`; status 0 means no answer."""
    with requests.Session() as session:
        for line in lines:
            start = time.perf_counter()
            if start > until:
                return
            try:
                body = {"instances": [line]}
                status = session.post(f"{url}:predict", json=body, timeout=60).status_code
            except requests.RequestException:
                status = 0
            answers.append((status, time.perf_counter() - start))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--url", default="http://127.0.0.1:8501/v1/models/translator")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()

    open_text = gzip.open if arguments.file.suffix == ".gz" else open
    with open_text(arguments.file, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    answers, start = [], time.perf_counter()
    clients = [
        threading.Thread(
            target=run_client,
            args=(
                arguments.url,
                itertools.islice(itertools.cycle(lines), i * len(lines) // arguments.clients, None),
                start + arguments.seconds,
                answers,
            ),
        )
        for i in range(arguments.clients)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    elapsed = time.perf_counter() - start
    times = sorted(seconds for status, seconds in answers if status == 200)
    result = {"statuses": collections.Counter(status for status, _ in answers)}
    if times:
        result["sentences_a_second"] = round(len(times) / elapsed, 1)
        for percent in (50, 95, 99):
            place = min(len(times) - 1, len(times) * percent // 100)
            result[f"p{percent}_ms"] = round(1000 * times[place], 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
