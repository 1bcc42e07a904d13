"""The workers of a training that SLURM has started on several machines."""

import os
import sys

import tensorflow as tf

from keras_transformer.errors import InputError


def config_from_slurm():
    """Returns what TF_CONFIG would say about the tasks of this SLURM step."""
    if "SLURM_STEP_NUM_TASKS" not in os.environ:
        raise InputError(
            "Expected a description of the workers, in TF_CONFIG or from SLURM's srun. "
            "Received: strategy='multi_worker' and neither of them. Set TF_CONFIG on each machine, "
            "or choose mirrored for the devices of one machine."
        )
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=sys.maxsize,  # lets it name any number of tasks per node
        gpus_per_task=1,
        auto_set_gpu=False,  # SLURM has assigned the GPUs already
    )
    cluster = resolver.cluster_spec().as_dict()
    return {"cluster": cluster, "task": {"type": resolver.task_type, "index": resolver.task_id}}
