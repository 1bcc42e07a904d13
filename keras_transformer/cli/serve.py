"""`keras-transformer serve`: serves an export like TensorFlow Serving, until it gets a signal."""

import argparse
import importlib
import logging
import os

from keras_transformer.cli import console
from keras_transformer.cli.arguments import add_settings, check_exists, given_settings, whole_number
from keras_transformer.cli.progress import working
from keras_transformer.config.settings import plain_type, settings
from keras_transformer.errors import InputError
from keras_transformer.files.version_numbers import version_number
from keras_transformer.serving import LOG
from keras_transformer.serving.settings import ServingConfig

SUMMARY = "serve an export over REST and gRPC, as TensorFlow Serving does"
LIBRARIES = ("grpc_health", "h11", "prometheus_client")


def add_arguments(parser):
    parser.add_argument("directory", metavar="DIR", help="directory with the versions of an export")
    parser.add_argument(
        "--model-name", metavar="NAME", help="name in requests (default: that of DIR)"
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1, this machine"
    )
    for flag, port in (("--port", 8501), ("--grpc-port", 8500)):
        number = whole_number(0, 65535)
        parser.add_argument(flag, metavar="N", type=number, default=port, help=f"default: {port}")
    parser.add_argument(
        "--versions",
        metavar="WHICH",
        type=_versions,
        default="latest",
        help="latest, all, or version numbers such as 1,2 (default: latest); new versions are "
        "loaded as they appear",
    )
    parser.add_argument(
        "--label",
        metavar="NAME=N",
        action="append",
        default=[],
        help="gives version N a label, and serves it too; can be repeated",
    )
    parser.add_argument(
        "--no-page",
        action="store_true",
        help="have no page for browsers at / (default: it is there)",
    )
    for name, setting in settings(ServingConfig).items():
        metavar = "N" if plain_type(setting.annotation) is int else "X"
        add_settings(parser, ServingConfig, metavar, [name], show_default=True)


def run(arguments):
    serving = ServingConfig(**given_settings(arguments, "serving"))
    labels = dict(map(_label, arguments.label))
    check_exists(arguments.directory, "an export")
    with working("starting the server"):
        console.start_keras()
    LOG.addHandler(console.LogLines())
    LOG.setLevel(logging.INFO)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # we report errors ourselves
    try:
        importlib.import_module("tensorflow")  # first, as it requires others that may be missing
        from keras_transformer.serving.grpc_server import in_brackets
        from keras_transformer.serving.server import Server
    except ModuleNotFoundError as error:
        if error.name not in LIBRARIES:
            raise
        raise InputError(
            f"Expected the libraries that serving needs. Received: {error}. "
            'Install them, in the clone of this package: pip install ".[serving]".'
        ) from None

    address = arguments.host, arguments.port, arguments.grpc_port
    given = arguments.directory, arguments.model_name, *address, arguments.versions, labels, serving
    server = Server(*given, has_page=not arguments.no_page)
    try:
        with working("loading the model"):
            server.start()
        host = in_brackets(server.host)
        console.say(
            f"serving {server.model_name} at http://{host}:{server.port}/v1/models/"
            f"{server.model_name} and, by gRPC, at {host}:{server.grpc_port}"
        )
        if not arguments.no_page:
            console.say(f"the page for browsers is at http://{host}:{server.port}/")
        server.wait()
    except (KeyboardInterrupt, SystemExit) as first:
        signalled = first
        try:
            server.stop()
        except (KeyboardInterrupt, SystemExit) as second:  # it waits for no answer
            signalled = second
        console.end_at_once(signalled)  # else Python would wait for a version that is loading


def _versions(text):
    """Returns the versions that a flag names, in the form that `serving.server.Server` takes."""
    if text in ("latest", "all"):
        return text
    numbers = set(map(version_number, text.split(",")))
    if None in numbers:
        raise argparse.ArgumentTypeError(
            f"expected latest, all, or versions such as 1,2; received: {text}"
        )
    return numbers


def _label(text):
    """Returns (label, version) of a flag such as `stable=2`."""
    label, equals, number = text.partition("=")
    if not label or not equals or version_number(number) is None:
        raise InputError(
            f"Expected a label and a version. Received: --label {text}. Write it as stable=2."
        )
    return label, version_number(number)
