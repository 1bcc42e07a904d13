"""A tour of the package on a small generated corpus, which `keras-transformer quickstart` runs."""
