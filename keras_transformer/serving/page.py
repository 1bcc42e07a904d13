"""The page for browsers at `/`: files of this package, and what REST paths do not tell a page."""

import json
import pathlib

from keras_transformer.serving.http_connection import Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
DIRECTORY = pathlib.Path(__file__).with_name("web")
MODEL = "/page.json"
"""The path of the model's name, its available versions, their labels and model cards."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    # no text can become markup or a program by a slip of the script
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
TEXT = "text/plain; charset=utf-8"
NOT_ALLOWED = Response(405, b"Method Not Allowed", TEXT, (("Allow", "GET, HEAD"), *HEADERS))


class Page:
    """Answers the requests of the page's paths.

    Args:
        versions: `Versions`.
    """

    def __init__(self, versions):
        self._versions = versions
        self._files = {
            path: Response(200, (DIRECTORY / name).read_bytes(), content_type, HEADERS)
            for path, (name, content_type) in FILES.items()
        }

    def answer(self, method, path):
        """Returns the `Response` to a request, or None for a path that is not of the page."""
        if path not in FILES and path != MODEL:
            return None
        if method not in ("GET", "HEAD"):
            return NOT_ALLOWED
        return self._files.get(path) or Response(200, self._model(), headers=HEADERS)

    def _model(self):
        """Returns JSON bytes: the name of the model, and its versions, the highest first."""
        labels = self._versions.labels
        versions = [
            {
                "version": str(number),  # JavaScript rounds large numbers
                "labels": [name for name, n in labels.items() if n == number],
                "card": self._versions.all[number].model.card,
            }
            for number in sorted(self._versions.available(), reverse=True)
        ]
        document = {"model": self._versions.model_name, "versions": versions}
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
