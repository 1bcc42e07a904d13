"""What a server counts, under the names that TensorFlow Serving gives it to Prometheus."""

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric

PATH = "/monitoring/prometheus/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_COUNT = ":tensorflow:serving:request_count"
LOAD_COUNT = ":tensorflow:serving:load_count"
MICROSECONDS = [10 * 1.8**i for i in range(33)]  # TensorFlow Serving's, to about 20 minutes


class Metrics:
    """Counters of one server.

    Attributes:
        batch_size: histogram of the rows of a run.
        runtime_latency: histogram of microseconds of a run.
    """

    def __init__(self, model_name):
        disable_created_metrics()  # TensorFlow Serving has none
        self._model_name = model_name
        self._registry = CollectorRegistry()
        self._num_requests = {}
        self._num_loads = {}
        self._registry.register(self)
        self._request_latency = self._histogram(
            "request_latency",
            "Distribution of wall time (in microseconds) for Tensorflow Serving request.",
            MICROSECONDS,
            ["model_name", "API", "entrypoint"],
        )
        self.runtime_latency = self._histogram(
            "runtime_latency",
            "Distribution of wall time (in microseconds) for Tensorflow runtime.",
            MICROSECONDS,
            ["model_name", "API", "runtime"],
        ).labels(model_name, "Predict", "TF1")
        self.batch_size = self._histogram(
            "batching_session:batch_size",
            "Rows that were run together.",
            [2**i for i in range(10)],
            ["model_name"],
        ).labels(model_name)
        self._queue_size = Gauge(
            ":tensorflow:serving:batching_session:queued_rows",
            "Rows that wait for their run.",
            registry=self._registry,
        )

    def count(self, status, entrypoint, api, seconds):
        """Counts a request: its status code's name, "REST" or "GRPC", its method, its time.

        As in TensorFlow Serving, the latency is that of predictions that have succeeded.
        """
        self._num_requests[status] = self._num_requests.get(status, 0) + 1
        if status == "OK" and api.lower() == "predict":
            latency = self._request_latency.labels(self._model_name, "predict", entrypoint)
            latency.observe(1e6 * seconds)

    def count_load(self, status):
        """Counts a version that was loaded, or was not: its status code's name."""
        self._num_loads[status] = self._num_loads.get(status, 0) + 1

    def watch_queue(self, num_rows):
        """Reads the length of the queue by calling `num_rows`."""
        self._queue_size.set_function(num_rows)

    def collect(self):
        """Yields the counters whose names have no `_total`, which prometheus_client would add.

        `page` calls them counters.
        """
        for name, meaning, numbers in (
            (REQUEST_COUNT, "The total number of requests.", self._num_requests),
            (LOAD_COUNT, "Attempts to load a version.", self._num_loads),
        ):
            metric = Metric(name, meaning, "untyped")
            for status, number in list(numbers.items()):
                labels = {"model_name": self._model_name, "status": status}
                metric.add_sample(metric.name, labels, number)
            yield metric

    def page(self):
        """Returns all of it as Prometheus reads it: bytes."""
        page = generate_latest(self._registry)
        for name in (REQUEST_COUNT, LOAD_COUNT):
            kind = f"# TYPE {name} ".encode()
            page = page.replace(kind + b"untyped", kind + b"counter")
        return page

    def _histogram(self, name, meaning, buckets, labels):
        return Histogram(
            f":tensorflow:serving:{name}", meaning, labels, buckets=buckets, registry=self._registry
        )
