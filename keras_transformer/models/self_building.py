"""A mix-in for models that create their weights themselves before they are trained or exported."""


class SelfBuilding:
    """Builds a model whose weights follow from the arguments of its constructor, when it must be.

    - `fit`: TensorFlow traces a step again if its first trace creates weights, as Keras's
      optimizers do. With all weights there before, a training begins in half the time.
    - `export`: Keras refuses a model that was never called.
    """

    def make_train_function(self, force=False):
        if not self.built:
            self.build()
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def export(self, *args, **kwargs):
        if not self.built:
            self.build()
        return super().export(*args, **kwargs)
