"""A captioner of images: "Show, attend and tell" (Xu et al., 2015) with a Transformer.

Shapes: B batch, R and C rows and columns of the grid of features, S cells (R C), T caption length,
D d_model, H heads, V vocabulary, N hypotheses of each image (in decoding).
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.decoding import DecodingStart
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers import (
    ConvolutionalEmbedding,
    Decoder,
    Encoder,
    PatchEmbedding,
    TokenEmbedding,
)
from keras_transformer.layers.image_embeddings import height_and_width, with_known_size
from keras_transformer.layers.stack import check_num_heads
from keras_transformer.models.base import build_parts
from keras_transformer.models.decoder_model import DecoderModel, two_inputs
from keras_transformer.special_ids import START_ID, shift_right
from keras_transformer.types import Shape, Tensor

FEATURES = ("patches", "convolutional")


@keras.saving.register_keras_serializable("keras_transformer")
class ImageCaptioner(DecoderModel):
    """Computes the logits of each word of a caption from the image and the words before it.

    As in Xu et al. (https://arxiv.org/abs/1502.03044, section 3.1), the encoder turns an image into
    a grid of features, and each word attends to the cells of the grid. The encoder is the one of a
    Vision Transformer without class token, or a small convolutional network. The decoder is that of
    a Transformer, with the features as keys and values of its cross-attention, or your own, such as
    a recurrent one. All is trained together; Xu et al. use an encoder that was trained before.

    Args:
        vocab_size: V, number of tokens in the vocabulary.
        image_size: height and width of an image in pixels: a pair, or an int for both.
        num_channels: channels of an image, such as 3 for colours and 1 for grey.
        features: where the features come from: "patches", a `PatchEmbedding` and `num_layers`
            pre-norm blocks; or "convolutional", a `ConvolutionalEmbedding` alone.
        patch_size: height and width of a patch in pixels, for "patches".
        num_convolutions: number of convolutions, for "convolutional".
        num_layers: number of blocks in the encoder.
        num_decoder_layers: number of blocks in the decoder.
        d_model: D, the width of the model.
        ff_dim: width of the feed-forward networks' inner layer.
        num_heads: H, which must divide D.
        dropout: rate on the embeddings and on each sublayer's output.
        activation: activation of the feed-forward networks.
        decoder: a layer with the call and the decoding methods of `Decoder`, whose embedding is
            also the output layer; None: a pre-norm `Decoder` with sinusoidal positions.

    Call arguments:
        inputs: {"images": `(B, height, width, num_channels)`, "target_ids": `(B, T)`}. The ids are
            integers, begin with the start token and are padded with 0 at the end.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, T, V)`, or a pair of them and {"encoder": `[(B, H, S, S)]`, "decoder":
        `[(B, H, T, T)]`, "cross": `[(B, H, T, S)]`}, with one list entry per layer. Keys that the
        encoder or the decoder has no weights for are left out.

    Raises:
        ValueError: unknown features, num_heads not dividing d_model, what `PatchEmbedding`
            refuses, a decoder without decoding methods or of another vocabulary, no image, or
            another number of captions than of images.

    Example:
    >>> model = ImageCaptioner(100, image_size=8, patch_size=4, num_layers=1, d_model=16,
    ...                        ff_dim=32, num_heads=2)
    >>> model({"images": np.zeros((1, 8, 8, 3)), "target_ids": np.array([[2, 7]])}).shape
    (1, 2, 100)
    """

    def __init__(
        self,
        vocab_size: int,
        image_size: int | tuple[int, int] = 32,
        num_channels: int = 3,
        features: str = "patches",
        patch_size: int = 4,
        num_convolutions: int = 2,
        num_layers: int = 2,
        num_decoder_layers: int = 2,
        d_model: int = 128,
        ff_dim: int = 256,
        num_heads: int = 4,
        dropout: float = 0.1,
        activation: str = "gelu",
        decoder: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_integers(vocab_size=vocab_size, num_channels=num_channels)
        if features not in FEATURES:
            raise InputError(f"features must be one of {FEATURES}. Received: {features=}.")
        check_num_heads(d_model, num_heads)
        self.vocab_size = vocab_size
        self.image_size = height_and_width(image_size)
        self.num_channels = num_channels
        self.features = features
        self.patch_size = patch_size
        self.num_convolutions = num_convolutions
        self.num_layers = num_layers
        self.num_decoder_layers = num_decoder_layers
        self.d_model = d_model
        self.ff_dim = ff_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.activation = activation
        self.has_own_decoder = decoder is not None

        policy = self.dtype_policy
        stack = dict(
            num_heads=num_heads,
            ff_dim=ff_dim,
            dropout=dropout,
            normalize_first=True,
            activation=activation,
            dtype=policy,
        )
        if features == "convolutional":
            self.encoder: Any = ConvolutionalEmbedding(
                image_size, d_model, num_convolutions, dtype=policy, name="encoder"
            )
        else:
            patches = PatchEmbedding(
                image_size, patch_size, d_model, dtype=policy, name="embedding"
            )
            self.encoder = Encoder(patches, num_layers, **stack, positions=None, name="encoder")
        if decoder is None:
            words = TokenEmbedding(vocab_size, d_model, dtype=policy, name="target_embedding")
            decoder = Decoder(words, num_decoder_layers, **stack, name="decoder")
        else:
            _check_decoder(decoder, vocab_size)
        self.decoder: Any = decoder
        images = (None, *self.image_size, num_channels)
        self.build_when_made({"images": images, "target_ids": (None, None)})

    @property
    def id_ranges(self) -> dict[str, range]:
        return {"target_ids": range(self.vocab_size)}

    @property
    def grid(self) -> tuple[int, int]:
        """R and C, the numbers of rows and columns of the features of an image."""
        return getattr(self.encoder, "embedding", self.encoder).grid

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        encoder = self.encoder, (None, *self.image_size, self.num_channels)
        build_parts(self, encoder, (self.decoder, (None, None), (None, None, self.d_model)))

    def compute_output_spec(self, inputs: Any, **options: Any) -> Any:
        images, target_ids = _images_and_ids(inputs)
        images = with_known_size(images, self.image_size)
        return super().compute_output_spec({"images": images, "target_ids": target_ids}, **options)

    def call(
        self,
        inputs: dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        images, target_ids = _images_and_ids(inputs)
        options = dict(return_attention_weights=return_attention_weights, training=training)
        if not return_attention_weights:
            x = self.encode(images, training)
            return self.predict_tokens(self.decoder(target_ids, x, **options))
        weights = {}
        if self.features == "patches":
            x, weights["encoder"] = self.encoder(images, **options)
        else:
            x = self.encode(images)
        x, *self_weights, weights["cross"] = self.decoder(target_ids, x, **options)
        if self_weights:  # a recurrent decoder has none
            (weights["decoder"],) = self_weights
        return self.project(x), {name: layers for name, layers in weights.items() if layers}

    def encode(self, images: Tensor, training: bool = False) -> Tensor:
        """Returns the features `(B, S, D)` of `images`."""
        return self.encoder(images, training=training)

    def attention_maps(self, images: Tensor, ids: Tensor) -> np.ndarray:
        """Returns what each word attends to: the mean of the heads of the decoder's last layer.

        Args:
            images: `(B, height, width, num_channels)`.
            ids: `(B, T)`, captions with the end token, padded with 0, such as `SearchResult.ids` of
                one hypothesis.
        Returns:
            Array `(B, T, R, C)`; each map sums to 1.
        Raises:
            ValueError: ids of another rank, or a decoder without attention weights, such as that
                of linear attention.
        """
        if len(ops.shape(ids)) != 2:
            raise InputError(
                "Expected ids of captions, (B, T). "
                f"Received: ids.shape={tuple(ops.shape(ids))}. One caption is ids[None]."
            )
        if not self.decoder.gives_cross_weights:
            raise InputError(
                "Expected a decoder with attention weights. "
                f"Received: {self.decoder.name}, which has none. Choose another attention."
            )
        target_ids = shift_right(ops.cast(ids, "int32"), ops)
        inputs = {"images": images, "target_ids": target_ids}
        _, weights = self(inputs, return_attention_weights=True)
        maps = ops.convert_to_numpy(ops.cast(weights["cross"][-1], "float32")).mean(axis=1)
        return maps.reshape(*maps.shape[:2], *self.grid)

    # === Step by step ===

    def start_decoding(
        self, images: Tensor, max_length: int, num_hypotheses: int = 1, weights: Any = None
    ) -> DecodingStart:
        """Encodes the images and returns what a search begins with.

        Args:
            images: `(B, height, width, num_channels)`.
            max_length: maximum tokens of a caption, including the end token; an int.
            num_hypotheses: N, hypotheses of each image.
            weights: from `decoding_weights`; None: computed here.
        Returns:
            `DecodingStart`.
        """
        weights = self.decoding_weights() if weights is None else weights
        images = ops.convert_to_tensor(images)
        num_images = ops.shape(images)[0]
        state = self.decoder.start_decoding(
            num_images * num_hypotheses, max_length, self.encode(images)
        )

        prompts = ops.full((num_images, 1), START_ID, dtype="int32")
        limits = ops.full((num_images,), max_length, dtype="int32")
        return self.decoding_start(state, prompts, limits, max_length, num_hypotheses, weights)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return config if self.has_own_decoder else {**config, "decoder": None}


def _check_decoder(decoder, vocab_size):
    """Raises `InputError` for a decoder that has not the methods of `Decoder`, or other ids."""
    needed = ("embedding", "start_decoding", "decode_step", "decoding_weights")
    missing = [name for name in needed if not hasattr(decoder, name)]
    if missing:
        raise InputError(
            "Expected a decoder such as layers.Decoder or layers.RnnDecoder. "
            f"Received: {decoder=}, without {', '.join(missing)}."
        )
    if decoder.embedding.vocab_size != vocab_size:
        raise InputError(
            "Expected a decoder whose embedding has the vocabulary of the captions. "
            f"Received: vocab_size={vocab_size}, "
            f"decoder.embedding.vocab_size={decoder.embedding.vocab_size}."
        )


def _images_and_ids(inputs):
    return two_inputs(inputs, images="(B, height, width, channels)", target_ids="(B, T)")
