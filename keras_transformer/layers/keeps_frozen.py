"""A mix-in for layers made of layers, so that a frozen one stays frozen."""


class KeepsFrozen:
    """Freezes what a layer with `trainable = False` consists of once it is built.

    Keras freezes the sublayers and weights that are there when `trainable` becomes False. Those of
    a layer that is frozen before it is built, or loaded from a file, come later.
    """

    def _post_build(self):  # what Keras calls after `build`
        super()._post_build()
        if not self.trainable:
            self.trainable = True  # Keras on TensorFlow ignores what changes nothing
            self.trainable = False
