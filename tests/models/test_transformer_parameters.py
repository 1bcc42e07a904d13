"""The number of parameters, against formulas that the paper's sections give."""

import inspect

import numpy as np
import pytest

from keras_transformer import Config, Transformer
from keras_transformer.config.presets import RECIPES, model_preset


def expected(vocab_size, num_layers, d_model, ff_dim, normalize_first=False, num_tables=1):
    """Sections 3.1 to 3.4, with biases on every projection and a tied output."""
    attention = 4 * (d_model * d_model + d_model)  # query, key, value, output
    feed_forward = d_model * ff_dim + ff_dim + ff_dim * d_model + d_model
    normalization = 2 * d_model
    encoder_block = attention + feed_forward + 2 * normalization
    decoder_block = 2 * attention + feed_forward + 3 * normalization
    last_normalizations = 2 * normalization if normalize_first else 0
    blocks = num_layers * (encoder_block + decoder_block)
    return num_tables * vocab_size * d_model + blocks + last_normalizations


@pytest.fixture
def count(without_values):
    """Counts a model's parameters without making their values: those of big would take 0.9 GB.

    Of the blocks, one a side is built; `test_the_count_is_what_a_real_model_holds` builds two.
    """

    def size(layer):
        return sum(int(np.prod(weight.shape)) for weight in layer.trainable_weights)

    def of(*vocab_sizes, num_layers, **arguments):
        model = without_values(Transformer, *vocab_sizes, num_layers=1, **arguments)
        (encoder_block,), (decoder_block,) = model.encoder.blocks, model.decoder.blocks
        return size(model) + (num_layers - 1) * (size(encoder_block) + size(decoder_block))

    return of


def preset(name):
    return model_preset(name, "transformer")


def test_base(count):
    """Table 3 says 65 million, for a vocabulary of "about 37000" pieces."""
    assert expected(37_000, 6, 512, 2048) == 63_082_496
    assert count(37_000, **preset("base")) == 63_082_496
    defaults = inspect.signature(Transformer.__init__).parameters
    assert preset("base") == {name: defaults[name].default for name in preset("base")}
    assert abs(63_082_496 / 65e6 - 1) < 0.03


def test_big(count):
    """Table 3 says 213 million."""
    assert expected(37_000, 6, 1024, 4096) == 214_245_376
    assert count(37_000, **preset("big")) == 214_245_376
    assert abs(214_245_376 / 213e6 - 1) < 0.01


def test_tiny(count):
    """Table 1 of Wu et al., 2021 (https://arxiv.org/abs/2105.14462) says 2.6 million."""
    assert expected(10_000, 4, 128, 256, normalize_first=True) == 2_605_568
    assert count(10_000, **preset("tiny")) == 2_605_568


def test_fast(without_values):
    """`tiny` with one decoder block, whose SSRU has two projections."""
    attention, feed_forward, norm = 4 * (128 * 128 + 128), 2 * 128 * 256 + 256 + 128, 2 * 128
    encoder_block = attention + feed_forward + 2 * norm
    decoder_block = 2 * 128 * 128 + 128 + attention + feed_forward + 3 * norm
    total = 10_000 * 128 + 4 * encoder_block + decoder_block + 2 * norm
    model = without_values(Transformer, 10_000, **preset("fast"))
    assert model.count_params() == total == 1_976_064


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(count, name):
    """The paper's 65 and 213 million would be those of vocabularies above and below 37,000."""
    config = Config.from_preset(name)
    model = config.model
    vocab_size = config.tokenizer.vocab_size
    sizes = {key: model[key] for key in ("num_layers", "d_model", "ff_dim", "normalize_first")}
    parameters = count(vocab_size, **config.model_arguments)
    assert parameters == expected(vocab_size, **sizes)
    if name.startswith("wmt14"):
        d_model = model["d_model"]
        of_table_3, its_vocab_size = {512: (65e6, 40_745), 1024: (213e6, 35_784)}[d_model]
        without_embeddings = parameters - vocab_size * d_model
        assert round((of_table_3 - without_embeddings) / d_model) == its_vocab_size


def test_the_example_of_iwslt14(count):
    """fairseq's `transformer_iwslt_de_en` has 39,469,056, with vocabularies of 8,848 and 6,632."""
    sizes = Config.from_preset("iwslt14-de-en").model_arguments
    theirs = count(8_848, 6_632, **sizes, share_embeddings=False)
    assert theirs == expected(8_848, 6, 512, 1024) + 6_632 * 512 == 39_469_056


def test_the_tutorial_of_ted(count):
    """TensorFlow's tutorial prints 10,184,162: heads as wide as the model, an untied output."""
    config = Config.from_preset("ted-pt-en")
    sizes = {**config.model_arguments, "normalize_first": False}
    ours = count(7_765, 7_010, **sizes, share_embeddings=False)
    num_layers, d_model, num_heads = 4, 128, 8
    inner = num_heads * d_model - d_model  # how much wider all heads together are
    wider = 3 * num_layers * (4 * d_model * inner + 3 * inner)  # 3 attentions in a layer of each
    assert ours + wider + d_model * 7_010 + 7_010 == 10_184_162


def test_variants(count):
    sizes = dict(num_layers=3, d_model=12, ff_dim=17, num_heads=2)
    one_table = expected(23, 3, 12, 17)
    assert count(23, **sizes) == one_table
    assert count(23, **sizes, share_embeddings=False) == one_table + 23 * 12
    assert count(23, 19, **sizes) == one_table + 19 * 12
    assert count(23, **sizes, tie_output=False) == one_table + 23 * 12
    assert count(23, 19, **sizes, tie_output=False) == one_table + 2 * 19 * 12
    learned = count(23, **sizes, positions="learned", max_length=31)
    assert learned == one_table + 2 * 31 * 12


def test_the_count_is_what_a_real_model_holds(make_model):
    model = make_model(num_layers=2)
    assert model.count_params() == expected(23, 2, 12, 17)
