"""Weights move between the backends of Keras: the same logits and the same loss on each."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.training.losses import TokenCrossEntropy

PROGRAM = """
import json, sys
import numpy as np
from keras import ops
from keras_transformer import Transformer, backend
from keras_transformer.training.losses import TokenCrossEntropy

folder = sys.argv[1]
model = Transformer(**json.load(open(folder + "/arguments.json")))
model.build()
model.load_weights(folder + "/model.weights.h5")
inputs = dict(np.load(folder + "/inputs.npz"))
labels = inputs.pop("labels")
names, values = inputs.keys(), map(ops.convert_to_tensor, inputs.values())
call = backend.compile_function(lambda *values: model(dict(zip(names, values))))
logits = call(*values)
loss = TokenCrossEntropy(0.1)(labels, logits)
np.savez(folder + "/outputs.npz", logits=ops.convert_to_numpy(logits), loss=float(loss))
"""

OTHERS = sorted({"tensorflow", "jax", "torch"} - {keras.backend.backend()})


@pytest.mark.parametrize("other", OTHERS)
def test_another_backend_gives_the_same_logits(other, make_model, batch, tmp_path):
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    arguments = dict(normalize_first=True, target_vocab_size=19, tie_output=False)
    model = make_model(**arguments)
    config = {key: getattr(model, key) for key in ("source_vocab_size", "num_layers", "d_model",
              "num_decoder_layers", "ff_dim", "num_heads", *arguments)}  # fmt: skip
    (tmp_path / "arguments.json").write_text(json.dumps(config))
    model.save_weights(tmp_path / "model.weights.h5")
    labels = np.roll(batch["target_ids"], -1, axis=1)
    np.savez(tmp_path / "inputs.npz", **batch, labels=labels)

    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": other},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    outputs = np.load(tmp_path / "outputs.npz")
    logits = model(batch)
    np.testing.assert_allclose(
        outputs["logits"], ops.convert_to_numpy(logits), rtol=1e-5, atol=1e-5
    )
    loss = ops.convert_to_numpy(TokenCrossEntropy(0.1)(labels, logits))
    assert float(outputs["loss"]) == pytest.approx(loss, rel=1e-5)
