"""The part of a prediction that REST and gRPC share: version, signature, limits and run."""

import contextlib

import grpc

from keras_transformer.serving.errors import ServingError, invalid, too_large
from keras_transformer.serving.loaded_model import DEFAULT_SIGNATURE


class Predicting:
    """Answers requests for one model.

    Args:
        versions: `Versions`.
        batching: `Batching`.
        settings: `ServingConfig`.
    """

    def __init__(self, versions, batching, settings):
        self.versions = versions
        self._batching = batching
        self._settings = settings

    @contextlib.contextmanager
    def signature(self, target, name=None, not_found=grpc.StatusCode.INVALID_ARGUMENT):
        """Yields the `Version` and `Signature` of a request, and keeps them loaded meanwhile.

        Args:
            target: `(model_name, number, label)`; number and label may be None.
            name: name of the signature; None or "" means the default one.
            not_found: status code if the model has no such signature.
        """
        with self.versions.using(*target) as version:
            name = name or DEFAULT_SIGNATURE
            signature = version.model.signatures.get(name)
            if signature is None and not_found == grpc.StatusCode.FAILED_PRECONDITION:
                raise ServingError(not_found, f'Serving signature key "{name}" not found.')
            if signature is None:
                raise invalid(f'Serving signature name: "{name}" not found in signature def')
            yield version, signature

    async def predict(self, signature, inputs, deadline=None):
        """Returns the outputs: dict from name to NumPy array.

        Args:
            signature: `Signature`.
            inputs: dict from input name to NumPy array.
            deadline: event loop time by which to answer. None means `request_timeout` seconds
                from now.
        """
        _check_shapes(signature, inputs)
        self._check_limits(signature, inputs)
        outputs = await self._batching.run(signature, inputs, deadline)
        num_values = sum(array.size for array in outputs.values())
        if num_values > self._settings.max_values:
            raise too_large(
                f"Expected an answer of at most {self._settings.max_values} values. "
                f"It would have {num_values}. Send fewer or shorter texts."
            )
        return outputs

    def _check_limits(self, signature, inputs):
        settings = self._settings
        max_rows = settings.max_rows if signature.is_batchable else settings.max_rows_alone
        for name, array in inputs.items():
            num_rows = len(array) if array.ndim else 1
            if num_rows > max_rows:
                raise too_large(
                    f"Expected at most {max_rows} rows of {name} in a request. "
                    f"Received: {num_rows}. Send them in several requests."
                )
            longest = max(map(len, array.ravel()), default=0) if array.dtype == object else 0
            if longest > settings.max_text_bytes:
                raise too_large(
                    f"Expected at most {settings.max_text_bytes} bytes in a {name}. "
                    f"Received: {longest}. Send it in parts."
                )


def _check_shapes(signature, inputs):
    """Refuses wrong shapes with the graph's own message; the Python session has another one."""
    for name, array in inputs.items():
        expected = signature.inputs[name].shape
        if expected is None:
            continue
        fits = len(expected) == array.ndim and all(
            size in (None, given) for size, given in zip(expected, array.shape, strict=True)
        )
        if not fits:
            sizes = ",".join("?" if size is None else str(size) for size in expected)
            raise invalid(
                f"Shape of tensor {name} [{','.join(map(str, array.shape))}] "
                f"is not compatible with expected shape [{sizes}]."
            )
