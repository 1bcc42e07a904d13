"""The metrics of a server for Prometheus, under the names that TensorFlow Serving uses."""

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

COUNTERS = {
    ":tensorflow:serving:request_count": "The total number of requests.",
    ":tensorflow:serving:load_count": "Attempts to load a version.",
}
MICROSECONDS = [10 * 1.8**i for i in range(33)]  # as in TensorFlow Serving, up to about 20 minutes


class Metrics:
    """Metrics of one server.

    Attributes:
        batch_size: histogram of rows in a run.
        runtime_latency: histogram of microseconds in a run.
        queue_size: gauge of rows in the queue.
    """

    def __init__(self, model_name):
        disable_created_metrics()  # TensorFlow Serving has no `_created` series
        self._model_name = model_name
        self._registry = CollectorRegistry()
        # a Counter would append `_total` to its name, which TensorFlow Serving does not
        self._num_requests, self._num_loads = (
            Gauge(name, meaning, ["model_name", "status"], registry=self._registry)
            for name, meaning in COUNTERS.items()
        )
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
        self.queue_size = Gauge(
            ":tensorflow:serving:batching_session:queued_rows",
            "Rows in the queue.",
            registry=self._registry,
        )

    def count(self, status, entrypoint, api, seconds):
        """Counts a request.

        As in TensorFlow Serving, only successful predictions add to the latency.

        Args:
            status: name of the status code.
            entrypoint: "REST" or "GRPC".
            api: name of the method.
            seconds: time that the request took.
        """
        self._num_requests.labels(self._model_name, status).inc()
        if status == "OK" and api.lower() == "predict":
            latency = self._request_latency.labels(self._model_name, "predict", entrypoint)
            latency.observe(1e6 * seconds)

    def count_load(self, status):
        """Counts an attempt to load a version, by the name of its status code."""
        self._num_loads.labels(self._model_name, status).inc()

    def page(self):
        """Returns all metrics in Prometheus's text format, as bytes."""
        page = generate_latest(self._registry)
        for name in COUNTERS:
            line = f"# TYPE {name} ".encode()
            page = page.replace(line + b"gauge", line + b"counter")
        return page

    def _histogram(self, name, meaning, buckets, labels):
        return Histogram(
            f":tensorflow:serving:{name}", meaning, labels, buckets=buckets, registry=self._registry
        )
