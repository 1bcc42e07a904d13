"""A translator that has learned the sentence pairs, and an export of it."""

import random

import pytest


@pytest.fixture(scope="session")
def translator(tokenizer, sentence_pairs):
    """Trained for seconds: knows most of the pairs by heart, so that answers differ and end."""
    import keras

    from keras_transformer.config import DecodingConfig
    from keras_transformer.models import Transformer
    from keras_transformer.translator import Translator

    random.seed(1)  # Keras draws the initializers' seeds from it
    source_texts, target_texts = zip(*sentence_pairs, strict=True)
    source_ids, _ = tokenizer.encode_padded(source_texts, 100)
    labels, _ = tokenizer.encode_padded(target_texts, 100)
    labels = labels.numpy()
    target_ids = labels.copy()
    target_ids[:, 1:], target_ids[:, 0] = labels[:, :-1], 2  # 2 starts a translation
    model = Transformer(
        tokenizer.vocab_size,
        num_layers=1,
        d_model=32,
        ff_dim=48,
        num_heads=2,
        dropout=0.0,
        normalize_first=True,
    )
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(True))
    inputs = {"source_ids": source_ids.numpy(), "target_ids": target_ids}
    model.fit(inputs, labels, sample_weight=labels != 0, batch_size=31, epochs=60, verbose=0)
    decoding = DecodingConfig(beam_size=3, max_length=60, max_source_length=50)
    return Translator(model, tokenizer, decoding=decoding)


@pytest.fixture(scope="session")
def exported(translator, tmp_path_factory):
    """The path of an export of the translator, with its two best translations."""
    from keras_transformer.export import export_saved_model

    return export_saved_model(translator, tmp_path_factory.mktemp("exports"), n_best=2)


@pytest.fixture(scope="session")
def exported_translator(exported):
    """The export, read back into Python."""
    from keras_transformer.export import load

    return load(exported.parent)


@pytest.fixture(scope="session")
def signatures(exported_translator):
    """The signatures of the export, as functions of tensors."""
    return exported_translator.signatures


@pytest.fixture(scope="session")
def texts(sentence_pairs):
    """64 texts of many lengths: known sentences, unknown words, blanks and one that is too long."""
    sources = [source for source, _ in sentence_pairs]
    swapped = [f"{b} {a.lower()}" for a, b in zip(sources, sources[1:], strict=False)]
    odd = ["", " \t\u3000", "zebra \U0001f44d\U0001f3fd мир"]
    return [*sources[:30], *odd, *swapped, " ".join(sources)]
