"""Where an export says what it is: a place that TensorFlow Serving leaves alone."""

SETTINGS = "assets.extra/keras_transformer.json"
