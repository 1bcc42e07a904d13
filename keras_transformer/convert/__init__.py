"""Models of other libraries, read from their files into models of this package."""

from keras_transformer.convert.hugging_face import Imported, from_hugging_face
from keras_transformer.convert.marian import import_run, read_marian

__all__ = ["Imported", "from_hugging_face", "import_run", "read_marian"]
