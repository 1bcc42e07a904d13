"""`python -m keras_transformer` is the command `keras-transformer`."""

import sys

from keras_transformer.cli import main

sys.exit(main())
