"""Measures the embedded server under load, compared with `translate` on the same lines and cores.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/serving.py EXPORT [--soak MINUTES]

starts `keras-transformer serve EXPORT`. `wrk` (a Debian package) sends test_2016_flickr of Multi30k
(DATA/multi30k), one sentence per request, from 1, 8 and 64 clients. The sentences per second are
compared with those of `ExportedTranslator` with the same export, in batches of 64 of similar
lengths, and in batches of 32 in the order of the file: 64 clients and two cores give the server no
other batches. All have all cores, in turn; wrk shares them with the server. Then `hey` (another
package) sends ten times as many requests as a server with a short queue can answer, each with the
longest sentence. With --soak, 64 clients follow for that many minutes, while the memory is watched.
"""

import argparse
import contextlib
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import requests
from pinned import HERE, count, multi30k, positive, run_pinned, write_results

CLIENTS = (1, 8, 64)
SECONDS = 15
WARM_UP = 8  # seconds; a new version warms up its other signatures while it answers
REPEATS = 3
OVERLOAD, OVERLOAD_CLIENTS = 10, 500  # times the capacity, and the number of clients
OVERLOAD_FLAGS = ["--max-queued", "128", "--max-rows", "64"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("--soak", type=positive, default=0, metavar="MINUTES")
    parser.add_argument("--cores", type=count, default=2)
    parser.add_argument("--flags", nargs="*", default=[], help="more flags for the server")
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()

    from keras_transformer.files.text import iterate_lines

    lines = list(iterate_lines(multi30k() / "test_2016_flickr.en.gz"))
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "source.txt")
        text.write_text("\n".join(lines) + "\n")
        results = {"cores": arguments.cores, **measured(arguments, text)}
    write_results(arguments.output or HERE / "results" / "serving.json", results)


def measured(arguments, text):
    """Returns the results, and prints them."""
    side = [arguments.export, text]
    rates, rates_in_order, loads = [], [], {clients: [] for clients in CLIENTS}
    for _ in range(REPEATS):
        found = run_pinned("serving_side.py", side, arguments.cores)
        rates.append(found["sentences"] / found["seconds"])
        rates_in_order.append(found["sentences"] / found["seconds_in_order"])
        with server(arguments.export, arguments.flags) as (url, process):
            load(url, text, 64, WARM_UP)
            for clients in CLIENTS:
                loads[clients].append(load(url, text, clients, SECONDS))
    rate, rate_in_order = statistics.median(rates), statistics.median(rates_in_order)
    print(f"translate, batches of 64 of similar lengths: {rate:.0f} sentences a second")
    print(f"batches of 32 in the order of the file: {rate_in_order:.0f} sentences a second\n")
    print(
        "| clients | sentences a second | of translate | of batches in order "
        "| p50 | p95 | p99 ms | refused, lost |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rows = {}
    for clients, runs in loads.items():
        row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        row["rate"] = (row["answers"] - row["refused"]) / row["seconds"]
        rows[clients] = row
        times = " | ".join(f"{row[key]:.0f}" for key in ("p50", "p95", "p99"))
        print(
            f"| {clients} | {row['rate']:.0f} | {row['rate'] / rate:.2f} "
            f"| {row['rate'] / rate_in_order:.2f} | {times} "
            f"| {row['refused']:.0f}, {row['lost']:.0f} |",
            flush=True,
        )
    with server(arguments.export, [*arguments.flags, *OVERLOAD_FLAGS]) as (url, process):
        overloaded = overload(url, text)
        soaked = soak(url, text, process, arguments.soak) if arguments.soak else None
    return {
        "translate": rate,
        "in_order": rate_in_order,
        "load": rows,
        "overload": overloaded,
        "soak": soaked,
    }


@contextlib.contextmanager
def server(export, flags):
    """Yields the URL of the model, and the process of the server that has loaded it."""
    command = [sys.executable, "-m", "keras_transformer", "serve", export, *flags]
    command += ["--port", "0", "--grpc-port", "0"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                break
        yield found[0], process
    finally:
        process.terminate()
        process.wait()


def load(url, text, clients, seconds):
    """Returns the output of wrk for a number of clients, each with one request at a time."""
    command = ["wrk", "--threads", 1, "--connections", clients, "--duration", f"{seconds:g}s"]
    command += ["--timeout", "60s", "--script", HERE / "serving.lua", f"{url}:predict", "--", text]
    output = subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True
    ).stdout
    return json.loads(output.splitlines()[-1])


def overload(url, text):
    """Measures an overload: the time of accepted and refused requests, and of the recovery."""
    sentence = max(text.read_text().splitlines(), key=len)
    body = json.dumps({"instances": [sentence]})
    longest = text.with_name("longest.txt")
    longest.write_text(sentence + "\n")
    served = load(url, longest, 64, SECONDS)
    capacity = served["answers"] / served["seconds"]
    # each client tries twice its share, because half of them wait for accepted requests
    rate = math.ceil(2 * OVERLOAD * capacity / OVERLOAD_CLIENTS)
    command = ["hey", "-z", f"{SECONDS}s", "-c", OVERLOAD_CLIENTS, "-q", rate, "-t", 60]
    command += ["-m", "POST", "-T", "application/json", "-o", "csv", "-d", body, f"{url}:predict"]
    output = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    ended = time.perf_counter()
    while requests.post(f"{url}:predict", data=body).status_code != 200:
        pass
    rows = [line.split(",") for line in output.stdout.splitlines()[1:]]
    found = {
        "capacity": capacity,
        "offered": len(rows) / SECONDS / capacity,  # times the capacity
        "recovery": time.perf_counter() - ended,
    }
    for status in sorted({row[6] for row in rows}):
        times = sorted(1000 * float(row[0]) for row in rows if row[6] == status)
        quantiles = {
            f"p{q}": times[min(len(times) - 1, len(times) * q // 100)] for q in (50, 95, 99)
        }
        found[status] = {"a_second": len(times) / SECONDS, **quantiles, "max": times[-1]}
    print(f"\noffered by {OVERLOAD_CLIENTS} clients: {json.dumps(found)}", flush=True)
    return found


def soak(url, text, process, minutes):
    """Returns the results of 64 clients for some minutes, and the memory after the first tenth."""
    end = time.monotonic() + 60 * minutes
    rows = []
    while time.monotonic() < end:
        found = load(url, text, 64, 30)
        rows.append({**found, "resident": resident(process)})
    later = [row["resident"] for row in rows[len(rows) // 10 :]]
    found = {
        "minutes": minutes,
        "answers": sum(row["answers"] for row in rows),
        "refused": sum(row["refused"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "resident": [row["resident"] for row in rows],
        "spread": max(later) / min(later) - 1,
    }
    print(f"soak: {json.dumps({**found, 'resident': later[:: max(1, len(later) // 10)]})}")
    return found


def resident(process):
    """Returns the resident memory of a process in megabytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


if __name__ == "__main__":
    main()
