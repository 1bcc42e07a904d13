"""The workers of a training on several machines, as the variable TF_CONFIG describes them."""

import json
import os

from keras_transformer.errors import InputError


def read_tf_config():
    """Returns the content of TF_CONFIG, a dict that is empty if the variable is not set.

    Raises:
        InputError: it is not a JSON object with the right types.
    """
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
        workers_of(config)
        int(config.get("task", {}).get("index", 0))
        return config
    except (ValueError, TypeError, AttributeError):
        raise InputError(
            "Expected TF_CONFIG to be a JSON object with a cluster (lists of hosts) and a task. "
            f"Received: TF_CONFIG={text}."
        ) from None


def workers_of(config):
    """Returns the `(type, index)` of each worker in a TF_CONFIG, the chief first."""
    cluster = config.get("cluster", {})
    return [(kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))]


def own_task(config):
    """Returns the `(type, index)` of this process.

    Raises:
        InputError: this process is not one of the workers.
    """
    task = config.get("task", {})
    task = task.get("type"), int(task.get("index", -1))
    if task not in workers_of(config):
        raise InputError(
            "Expected TF_CONFIG to name this process among the workers of its cluster. "
            f"Received: TF_CONFIG={json.dumps(config)}. Write it as "
            '{"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}.'
        )
    return task
