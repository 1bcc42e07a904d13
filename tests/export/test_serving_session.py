"""XLA can be disabled by a private function of TensorFlow, as on a stock server."""

from tests import forked

PROGRAM = """
import tensorflow as tf
from keras_transformer.export.serving_session import disable_xla

compiled = tf.function(lambda x: 2.0 * x, jit_compile=True)
print(compiled(tf.constant(3.0)).numpy())
disable_xla()
fresh = tf.function(lambda x: 2.0 * x, jit_compile=True)
try:
    fresh(tf.constant(3.0))
except tf.errors.OpError as error:
    print(error.message.partition(" [")[0])
"""


def test_xla_is_disabled():
    done = forked.run(["-c", PROGRAM])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["6.0", "XLA compilation disabled"]
