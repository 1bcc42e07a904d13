"""A server for exports with TensorFlow Serving's interface, for use without its image."""
