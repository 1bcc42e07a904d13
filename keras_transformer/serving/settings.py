"""What a server allows: every limit has a default that suits sentences on a few cores."""

import dataclasses
import os

from keras_transformer.settings import Count, Positive, PositiveOrZero, SettingsGroup

# those that this process may use, where the system tells
NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@dataclasses.dataclass(frozen=True)
class ServingConfig(SettingsGroup):
    """How requests are batched, and what is too much."""

    GROUP = "serving"

    max_batch_size: Count = 64
    """Most sentences of several requests that are translated together."""
    max_delay_ms: PositiveOrZero = 20.0
    """Milliseconds that a free thread waits for those just answered to ask again."""
    batch_threads: Count = NUM_CORES
    """Batches translated at the same time, each on a core of its own."""
    max_queued: Count = 512
    """Sentences that may wait; what comes on top is answered 503."""
    max_queued_bytes: Count = 64 * 2**20
    """Bytes of requests that may wait or arrive at the same time; with more, it is 503."""
    max_rows: Count = 256
    """Most sentences of one request; more are answered 413."""
    max_rows_alone: Count = 16
    """The same of a signature whose answers grow with its rows' neighbours, as attention's do."""
    max_values: Count = 300_000
    """Most numbers or strings of a request or of its answer; more are answered 413. A document has
    at most twice as many brackets and commas, what is not read of it counted."""
    max_text_bytes: Count = 100_000
    """Most bytes of one sentence; more are answered 413."""
    max_body_bytes: Count = 4 * 2**20
    """Most bytes of one request, inflated; more are answered 413."""
    max_json_depth: Count = 32
    """Most brackets inside each other in a request; more are answered 413."""
    max_connections: Count = 512
    """Connections that may be open; over that, GET is answered, and other requests are 503.
    A quarter of them is the gRPC port's, where one connection carries many calls."""
    request_timeout: Positive = 30.0
    """Seconds from a request's first byte to its answer; what takes longer is stopped: 504. As long
    again has the client to read the answer, or the connection is closed."""
    idle_timeout: Positive = 75.0
    """Seconds that a connection may stay open between two requests; more than a proxy's, which must
    not send into a connection that closes."""
    load_timeout: Positive = 300.0
    """Seconds that a version has to be loaded; one that takes longer is given up."""
    poll_seconds: Positive = 1.0
    """Seconds from one look for new versions to the next."""
    grace_seconds: Positive = 30.0
    """Seconds that accepted requests have to finish when the server is stopped."""

    def __post_init__(self):
        super().__post_init__()
        if self.max_connections < 2:
            raise ValueError(
                "Expected a connection for REST and one for gRPC at least. "
                f"Received: max_connections={self.max_connections}. Raise it."
            )
        if self.max_rows > self.max_queued:
            raise ValueError(
                "Expected a queue that holds the largest request. Received: "
                f"max_rows={self.max_rows}, max_queued={self.max_queued}. Raise max_queued."
            )
        if self.max_body_bytes > self.max_queued_bytes:
            raise ValueError(
                "Expected a queue that holds the largest request. Received: "
                f"max_body_bytes={self.max_body_bytes}, max_queued_bytes={self.max_queued_bytes}. "
                "Raise max_queued_bytes."
            )

    @property
    def max_grpc_connections(self):
        """The gRPC port's share: gRPC cannot tell how many it has open, but it keeps to a limit."""
        return max(1, self.max_connections // 4)

    @property
    def max_rest_connections(self):
        return self.max_connections - self.max_grpc_connections
