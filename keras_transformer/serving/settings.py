"""The settings of a server, with defaults for sentences on a few cores."""

import dataclasses
from typing import Annotated

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

    max_batch_size: Annotated[
        Count, "Maximum sentences in a batch, which may come from several requests."
    ] = 64
    max_delay_ms: Annotated[
        PositiveOrZero,
        "Maximum milliseconds that an idle thread waits for more requests, from clients that were "
        "just answered, before it runs a batch that is not full.",
    ] = 20.0
    batch_threads: Annotated[
        Count, "Batches translated at the same time, each on its own core."
    ] = NUM_CORES
    max_queued: Annotated[
        Count, "Maximum sentences in the queue; further requests are answered 503."
    ] = 512
    max_queued_bytes: Annotated[
        Count,
        "Maximum bytes of requests that wait or are translated; further requests are answered "
        "503. Bodies and answers that are being transferred have a limit of the same size.",
    ] = 64 * 2**20
    max_rows: Annotated[Count, "Maximum sentences in a request; more are answered 413."] = 256
    max_rows_alone: Annotated[
        Count,
        "Maximum sentences in a request to a signature that cannot be batched, such as "
        "attention; more are answered 413.",
    ] = 16
    max_values: Annotated[
        Count,
        "Maximum numbers or strings in a request or in its answer; more are answered 413. JSON "
        "may have twice as many brackets and commas, including those in ignored members.",
    ] = 300_000
    max_text_bytes: Annotated[Count, "Maximum bytes of a sentence; more are answered 413."] = (
        100_000
    )
    max_body_bytes: Annotated[
        Count, "Maximum bytes of a request after decompression; more are answered 413."
    ] = 4 * 2**20
    max_json_depth: Annotated[
        Count, "Maximum depth of nested brackets in a request; more are answered 413."
    ] = 32
    max_connections: Annotated[
        Count,
        "Maximum open connections. Beyond that only GET is answered, and other requests get "
        "503. A quarter of them is for gRPC, where one connection carries many calls.",
    ] = 512
    request_timeout: Annotated[
        Positive,
        "Maximum seconds from the first byte of a request to its answer; a longer request is "
        "stopped and answered 504. The client has the same time to read the answer, or else "
        "the connection is closed.",
    ] = 30.0
    idle_timeout: Annotated[
        Positive,
        "Maximum seconds that a connection stays open between two requests. A proxy in front "
        "needs a shorter time, or it may send a request into a connection that is being "
        "closed.",
    ] = 75.0
    load_timeout: Annotated[
        Positive, "Maximum seconds to load a version; loading is given up after that."
    ] = 300.0
    poll_seconds: Annotated[Positive, "Seconds between two checks for new versions."] = 1.0
    grace_seconds: Annotated[
        Positive, "Maximum seconds that accepted requests have to finish when the server stops."
    ] = 30.0

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
