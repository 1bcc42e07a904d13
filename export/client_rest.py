"""Translates by REST; works with TensorFlow Serving and with `keras-transformer serve`.

    python client_rest.py "A dog runs." "A cat sleeps." [--url URL]

where a URL may end in a label, `.../v1/models/translator/labels/stable`.

Needs `requests`. By hand:

    curl http://127.0.0.1:8501/v1/models/translator:predict -d '{"instances": ["A dog runs."]}'
"""

import argparse
import sys

import requests


def translate(url, texts, timeout=35.0):
    """Returns a list of dicts with translation, score and truncated, one for each text.

    Raises:
        RuntimeError: the server refuses; the message is its own.
    """
    response = requests.post(f"{url}:predict", json={"instances": texts}, timeout=timeout)
    if response.status_code != 200:
        raise RuntimeError(f"{response.status_code}: {response.json()['error']}")
    return response.json()["predictions"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8501/v1/models/translator")
    arguments = parser.parse_args()
    try:
        answers = translate(arguments.url, arguments.text)
    except (RuntimeError, requests.RequestException) as error:
        sys.exit(f"client_rest.py: {error}")
    for answer in answers:
        print(answer["translation"])


if __name__ == "__main__":
    main()
