"""Error codes, as in TensorFlow Serving."""

import grpc
import pytest
import tensorflow as tf

from keras_transformer.serving import errors


@pytest.mark.parametrize(
    ("error", "http_status"),
    [
        (tf.errors.InvalidArgumentError(None, None, "x"), 400),
        (tf.errors.FailedPreconditionError(None, None, "x"), 400),
        (tf.errors.OutOfRangeError(None, None, "x"), 400),
        (tf.errors.NotFoundError(None, None, "x"), 404),
        (tf.errors.ResourceExhaustedError(None, None, "x"), 429),
        (tf.errors.CancelledError(None, None, "x"), 499),
        (tf.errors.InternalError(None, None, "x"), 500),
        (tf.errors.UnknownError(None, None, "x"), 500),
        (tf.errors.UnimplementedError(None, None, "x"), 501),
        (tf.errors.UnavailableError(None, None, "x"), 503),
        (tf.errors.DeadlineExceededError(None, None, "x"), 504),
        (MemoryError("x"), 500),
    ],
)
def test_errors_of_the_graph_have_their_codes(error, http_status):
    assert errors.from_tensorflow(error).http_status == http_status


def test_a_message_is_one_line_and_has_no_trace_of_python():
    message = "Graph execution error:\n\nassertion failed: [no]\n\t [[{{node a}}]]"
    found = errors.from_tensorflow(tf.errors.InvalidArgumentError(None, None, message))
    assert str(found) == "assertion failed: [no]"
    assert found.code == grpc.StatusCode.INVALID_ARGUMENT


def test_a_request_that_is_too_large_is_413_and_by_grpc_invalid():
    error = errors.too_large("x")
    assert (error.http_status, error.code) == (413, grpc.StatusCode.INVALID_ARGUMENT)


def test_a_message_is_cut_where_grpc_would_refuse_it():
    for character, size in (("a", 1), ("é", 2), ("猫", 3)):
        cut = str(errors.invalid(character * 10**5)).encode()
        limit = errors.MAX_MESSAGE_BYTES
        assert limit - size < len(cut) - len("...") <= limit
    assert str(errors.invalid("\ud800" * 9)) == "\ud800" * 9


def test_no_message_has_a_path_of_the_server():
    for error, message in (
        (tf.errors.NotFoundError(None, None, "/srv/a b/m/1/variables.data; No such file"), None),
        (tf.errors.DataLossError(None, None, "Unable to open table file /srv/m/1/x: no"), "1/x"),
        (FileNotFoundError(2, "No such file", "/srv/m/1/x"), "/srv"),
    ):
        found = str(errors.from_tensorflow(error))
        assert "/srv" not in found and "No such file" in found + "No such file"
        assert message is None or message not in found
    text = "Expected 3/4 of [a/b] at http://x/y"
    assert "3/4 of [a/b]" in str(errors.from_tensorflow(tf.errors.InternalError(None, None, text)))
