"""Translates by REST; works with TensorFlow Serving and with `keras-transformer serve`.

    python client_rest.py "A dog runs." "A cat sleeps." [--url URL]

A URL may end in a label: `.../v1/models/translator/labels/stable`. Through the proxy of nginx.conf
(the password is in TRANSLATOR_PASSWORD, or you are asked for it):

    python client_rest.py "A dog runs." --user NAME [--ca-file FILE]
        --url https://translate.example.org:8443/v1/models/translator

Translations that begin with a text, and have terms (a tab between alternatives, ! before what they
must not say):

    python client_rest.py "A dog runs." --prefix "Der " --term Vierbeiner --term '!rennt'

Needs `requests`. The same with curl:

    curl http://127.0.0.1:8501/v1/models/translator:predict -d '{"instances": ["A dog runs."]}'
"""

import argparse
import datetime
import email.utils
import getpass
import os
import random
import sys
import time

import requests

RETRIED = {429, 503, 504}
"""Statuses of a busy server: the request may succeed later."""
RETRIES = 4
LONGEST_PAUSE = 60.0
"""Seconds. If a server asks for a longer pause, the request is not repeated."""


def translate(url, texts, timeout=35.0, prefix="", terms=(), **options):
    """Returns a list of dicts with translation, score and truncated, one for each text.

    Args:
        url: URL of the model, or of one of its labels.
        texts: list of str.
        timeout: seconds for one answer. The request to a busy server is repeated up to `RETRIES`
            times.
        prefix, terms: what each translation begins with, and the forms that it must have.
        options: further arguments of `requests.post`, such as `auth` and `verify`.
    Raises:
        RuntimeError: the server refused the request; the message has the status and the reason.
    """
    body = {"instances": texts}
    if prefix or terms:
        rows = [{"text": text, "prefix": prefix, "terms": list(terms)} for text in texts]
        body = {"signature_name": "constrained", "instances": rows}
    for attempt in range(RETRIES + 1):
        response = requests.post(f"{url}:predict", json=body, timeout=timeout, **options)
        pause = seconds_to_wait(response, attempt)
        if response.status_code not in RETRIED or attempt == RETRIES or pause > LONGEST_PAUSE:
            break
        time.sleep(pause)
    try:
        answer = response.json()
    except requests.JSONDecodeError:
        answer = None  # for example the HTML page of a proxy
    if response.status_code == 200 and isinstance(answer, dict) and "predictions" in answer:
        return answer["predictions"]
    if isinstance(answer, dict) and "error" in answer:
        reason = answer["error"]
    else:
        kind = response.headers.get("Content-Type", "no type")
        reason = f"{response.reason} (a body of {kind}, not of a model server)"
    raise RuntimeError(f"{response.status_code}: {reason}")


def seconds_to_wait(response, attempt):
    """Returns the seconds of Retry-After, or a random pause that doubles with each attempt."""
    after = response.headers.get("Retry-After", "")
    if after.isdecimal():
        return float(after)
    try:
        moment = email.utils.parsedate_to_datetime(after)
    except ValueError:
        return 0.5 * 2**attempt * random.uniform(1, 2)
    now = datetime.datetime.now(moment.tzinfo)
    return max(0.0, (moment - now).total_seconds())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8501/v1/models/translator")
    parser.add_argument("--user", metavar="NAME")
    parser.add_argument("--ca-file", metavar="FILE", help="certificate authority of the proxy")
    parser.add_argument("--prefix", default="", metavar="TEXT")
    parser.add_argument("--term", action="append", default=[], metavar="FORM")
    arguments = parser.parse_args()
    options = {"prefix": arguments.prefix, "terms": arguments.term}
    if arguments.ca_file:
        options["verify"] = arguments.ca_file
    if arguments.user:
        if not arguments.url.startswith("https://"):
            parser.error("Expected an https:// URL for a password. Received: " + arguments.url)
        password = os.environ.get("TRANSLATOR_PASSWORD") or getpass.getpass()
        options["auth"] = (arguments.user, password)
    try:
        answers = translate(arguments.url, arguments.text, **options)
    except (RuntimeError, OSError) as error:  # errors of requests are OSErrors
        sys.exit(f"client_rest.py: {error}")
    for answer in answers:
        print(answer["translation"])


if __name__ == "__main__":
    main()
