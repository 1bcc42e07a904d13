"""The library CTranslate2, which is an extra of this package."""

from keras_transformer.errors import InputError


def ctranslate2_library():
    """Returns the module `ctranslate2`; raises `InputError` where it is not installed."""
    try:
        import ctranslate2
    except ModuleNotFoundError as error:
        raise InputError(
            f"Expected the library ctranslate2. Received: {error}. "
            'Install it, in the clone of this package: pip install ".[ctranslate2]".'
        ) from None
    return ctranslate2
