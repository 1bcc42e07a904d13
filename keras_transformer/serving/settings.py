"""The settings of a server, with defaults for sentences on a few cores."""

import dataclasses

from keras_transformer.config.settings import (
    NUM_CORES,
    Count,
    Positive,
    PositiveOrZero,
    SettingsGroup,
)
from keras_transformer.errors import InputError


@dataclasses.dataclass(frozen=True)
class ServingConfig(SettingsGroup):
    """Batching of requests, and limits of size, number and time."""

    GROUP = "serving"

    max_batch_size: Count = 64
    """Maximum sentences in a batch, which may come from several requests."""
    max_delay_ms: PositiveOrZero = 20.0
    """Milliseconds that a free thread waits for clients that were just answered to ask again."""
    batch_threads: Count = NUM_CORES
    """Batches translated at the same time, each on its own core."""
    max_queued: Count = 512
    """Maximum sentences in the queue; further requests are answered 503."""
    max_queued_bytes: Count = 64 * 2**20
    """Maximum bytes of requests in the queue; further requests are answered 503. Bodies that are
    being received have a limit of the same size."""
    max_rows: Count = 256
    """Maximum sentences in a request; more are answered 413."""
    max_rows_alone: Count = 16
    """Maximum sentences in a request to a signature that cannot be batched, such as attention; more
    are answered 413."""
    max_values: Count = 300_000
    """Maximum numbers or strings in a request or in its answer; more are answered 413. JSON may
    have twice as many brackets and commas, including those in ignored members."""
    max_text_bytes: Count = 100_000
    """Maximum bytes of a sentence; more are answered 413."""
    max_body_bytes: Count = 4 * 2**20
    """Maximum bytes of a request after decompression; more are answered 413."""
    max_json_depth: Count = 32
    """Maximum depth of nested brackets in a request; more are answered 413."""
    max_connections: Count = 512
    """Maximum open connections. Beyond that only GET is answered, and other requests get 503.
    A quarter of them is for gRPC, where one connection carries many calls."""
    request_timeout: Positive = 30.0
    """Maximum seconds from the first byte of a request to its answer; a longer request is stopped
    and answered 504. The client has the same time to read the answer, or else the connection is
    closed."""
    idle_timeout: Positive = 75.0
    """Maximum seconds that a connection stays open between two requests. A proxy in front needs a
    shorter time, or it may send a request into a connection that is being closed."""
    load_timeout: Positive = 300.0
    """Maximum seconds to load a version; loading is given up after that."""
    poll_seconds: Positive = 1.0
    """Seconds between two looks for new versions."""
    grace_seconds: Positive = 30.0
    """Maximum seconds that accepted requests have to finish when the server stops."""

    def __post_init__(self):
        super().__post_init__()
        if self.max_connections < 2:
            raise InputError(
                "Expected at least one connection for REST and one for gRPC. "
                f"Received: max_connections={self.max_connections}. Raise it."
            )
        for name, of_queue in (("max_rows", "max_queued"), ("max_body_bytes", "max_queued_bytes")):
            largest, limit = getattr(self, name), getattr(self, of_queue)
            if largest > limit:
                raise InputError(
                    "Expected a queue that holds the largest request. Received: "
                    f"{name}={largest}, {of_queue}={limit}. Raise {of_queue}."
                )

    @property
    def max_grpc_connections(self):
        """The fixed share of gRPC, which keeps to a limit but does not say how many are open."""
        return max(1, self.max_connections // 4)

    @property
    def max_rest_connections(self):
        return self.max_connections - self.max_grpc_connections
