"""Names for the types of arguments and results."""

import os
from typing import TYPE_CHECKING, Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor of Keras's backend, or what the backend makes a tensor of, such as a NumPy array. Keras
and TensorFlow have no types that a checker could use."""

Shape: TypeAlias = Any
"""A tuple of int, with None for a size that is not known; or a dict or list of them."""

StrPath: TypeAlias = str | os.PathLike[str]

Texts: TypeAlias = list[str] | tuple[str, ...]
"""Several texts. A single str is none, though it is a sequence of str."""

if TYPE_CHECKING:
    from typing_extensions import Self as Self  # in `typing` from Python 3.11 on
else:
    Self = Any
