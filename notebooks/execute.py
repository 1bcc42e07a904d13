"""Executes the notebooks from top to bottom, each in a fresh kernel and an empty directory.

    python notebooks/execute.py                          all of them, one after the other
    python notebooks/execute.py --short                  with little training, as CI does
    python notebooks/execute.py --store 1_attention      writes the outputs into the notebook

Exits with 1 where a cell has failed. Needs the extra `notebooks`.

A notebook has a code cell with the tag `parameters`. The short form runs the Python code of the
notebook's metadata, {"keras_transformer": {"short": "STEPS = 10"}}, after that cell, and leaves out
the cells with the tag `full`, whose claims hold after the whole training alone.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
CELL_SECONDS = 1200


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 1_attention; none: all")
    parser.add_argument("--short", action="store_true", help="train little, leave out its claims")
    parser.add_argument("--store", action="store_true", help="write the outputs into the notebooks")
    arguments = parser.parse_args()
    if arguments.short and arguments.store:
        parser.error("Expected the whole notebook to store. Received: --short. Leave one out.")
    paths = sorted(FOLDER.glob("*.ipynb"), reverse=True)  # the last ones take the longest
    if arguments.names:
        names = {pathlib.Path(name).stem for name in arguments.names}
        unknown = names - {path.stem for path in paths}
        if unknown:
            known = ", ".join(path.stem for path in paths)
            parser.error(
                f"Expected notebooks. Received: {', '.join(sorted(unknown))}. Has: {known}."
            )
        paths = [path for path in paths if path.stem in names]
    sys.exit(1 if execute_all(paths, arguments.short, arguments.store) else 0)


def execute_all(paths, short, store):
    """Executes the notebooks, prints how long each took, and returns how many have failed.

    In short form, which is mostly start-up on one thread, there is one notebook for each core.
    Whole notebooks measure times, and run alone.
    """
    num_cores = os.cpu_count() or 1
    num_processes = min(num_cores, len(paths)) if short else 1
    num_threads = max(1, num_cores // max(1, num_processes))
    num_failed = 0
    processes = concurrent.futures.ProcessPoolExecutor(
        max(1, num_processes), mp_context=multiprocessing.get_context("spawn")
    )
    with processes as pool:
        futures = [pool.submit(execute, path, short, store, num_threads) for path in paths]
        for path, future in zip(paths, futures, strict=True):
            seconds, error = future.result()
            print(f"{path.stem:24} {seconds:6.1f} s  {'failed' if error else 'passed'}", flush=True)
            if error:
                num_failed += 1
                print(error, flush=True)
    return num_failed


def execute(path, short, store, num_threads):
    """Executes a notebook; returns the seconds that it took, and the error's text or ""."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    notebook = shortened(notebook) if short else notebook
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="notebook") as directory:
        client = nbclient.NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name=KERNEL["name"],
            resources={"metadata": {"path": directory}},
            record_timing=False,
            coalesce_streams=True,  # else the parts of a text depend on when they came
        )
        try:
            client.execute(env=_environment(num_threads), stderr=subprocess.DEVNULL)
        except Exception as error:  # a cell's error, a time limit, or a kernel that has died
            return time.monotonic() - start, f"{type(error).__name__}: {error}"
    if store:
        notebook.metadata = stored_metadata(notebook.metadata)
        nbformat.write(notebook, path)
    return time.monotonic() - start, ""


def shortened(notebook):
    """Returns the notebook with its short parameters, without the cells with the tag `full`."""
    import nbformat

    cells = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if "full" not in tags:
            cells.append(cell)
        if "parameters" in tags:
            short = notebook.metadata["keras_transformer"]["short"]
            cells.append(nbformat.v4.new_code_cell(short))
    return nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)


def stored_metadata(metadata):
    """Returns what does not differ between two machines that execute the notebook."""
    return {
        "kernelspec": KERNEL,
        "keras_transformer": metadata["keras_transformer"],
        "language_info": {"name": "python"},
    }


def _environment(num_threads):
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",  # no TensorFlow chatter among the stored outputs
        "TF_NUM_INTRAOP_THREADS": str(num_threads),
        "TF_NUM_INTEROP_THREADS": str(num_threads),
        "OMP_NUM_THREADS": str(num_threads),
    }
    environment.pop("MPLBACKEND", None)  # pictures are shown in the notebook
    return environment


if __name__ == "__main__":
    main()
