"""The encoder-decoder Transformer (Vaswani et al., 2017, https://arxiv.org/abs/1706.03762).

Shapes: B batch, S source length, T target length, D d_model, H heads, V target vocabulary; in
decoding N hypotheses.
"""

import keras
from keras import ops

from keras_transformer.layers import (
    DecoderBlock,
    Dropout,
    EncoderBlock,
    LayerNormalization,
    LearnedPositions,
    ScaledDotProductAttention,
    SinusoidalPositions,
    TokenEmbedding,
    padding_mask,
)
from keras_transformer.layers.attention.by_name import CROSS_ATTENTIONS, attention_by_name
from keras_transformer.layers.attention.sparse import SparseAttention
from keras_transformer.models.token_model import TokenModel

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi")


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(TokenModel):
    """Translates: the logits of each next target token, given the source and the target so far.

    The defaults are the paper's base model (table 3). `Transformer.from_preset` knows "tiny",
    "base" and "big".

    Args:
        source_vocab_size: number of source pieces.
        target_vocab_size: V; None: source and target share one vocabulary.
        num_layers: blocks in the encoder.
        num_decoder_layers: blocks in the decoder; None: as many.
        d_model: D, the width of the model.
        ff_dim: width of the feed-forward networks' inner layer.
        num_heads: H, which must divide D.
        dropout: rate on the embeddings and on each sublayer's output.
        normalize_first: True for pre-norm, False for post-norm, the paper's.
        activation: of the feed-forward networks.
        positions: added to the embeddings, "sinusoidal" or "learned"; or within each
            self-attention, "rotary" or "alibi".
        max_length: longest input in tokens, for learned positions; the others take any.
        share_embeddings: whether source and target use one table, where they share a vocabulary.
        tie_output: whether the output layer is the target embedding (section 3.4) or has its own
            weights.
        attention: the self-attention of both stacks: "dense", "local", "block", "strided",
            "linear" or "performer"; or a dict of the name and of the layer's numbers, as
            {"name": "local", "window": 8}.
        cross_attention: the decoder's attention to the source: "dense", "linear" or "performer".

    Call arguments:
        inputs: {"source_ids": `(B, S)`, "target_ids": `(B, T)`}, integers, padded with 0 at the
            end. The target starts with the start token and lacks the end token.
        return_attention_weights: whether to return the weights too.
        training: whether dropout acts.

    Returns:
        The logits `(B, T, V)`, or the pair of them and {"encoder": `[(B, H, S, S)]`, "decoder":
        `[(B, H, T, T)]`, "cross": `[(B, H, T, S)]`}, a list entry a layer; without the kinds that
        linear attention computes, which has none.

    Raises:
        ValueError: sizes below 1, num_heads not dividing d_model, unknown positions or attention,
            a cross_attention that asks for distances, ALiBi with linear attention.

    Example:
    >>> model = Transformer(100, num_layers=1, d_model=16, ff_dim=32, num_heads=2)
    >>> source_ids, target_ids = np.array([[5, 6, 3]]), np.array([[2, 7]])
    >>> model({"source_ids": source_ids, "target_ids": target_ids}).shape
    (1, 2, 100)
    """

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size=None,
        num_layers=6,
        num_decoder_layers=None,
        d_model=512,
        ff_dim=2048,
        num_heads=8,
        dropout=0.1,
        normalize_first=False,
        activation="relu",
        positions="sinusoidal",
        max_length=1024,
        share_embeddings=True,
        tie_output=True,
        attention="dense",
        cross_attention="dense",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.autocast = False  # ids that come as floats would be rounded to bfloat16
        if num_layers < 1 or (num_decoder_layers is not None and num_decoder_layers < 1):
            raise ValueError(
                "num_layers and num_decoder_layers must be at least 1. "
                f"Received: num_layers={num_layers}, num_decoder_layers={num_decoder_layers}."
            )
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(
                "d_model must be divisible by num_heads. "
                f"Received: d_model={d_model}, num_heads={num_heads}. Change one of them."
            )
        if positions not in POSITIONS:
            raise ValueError(f"positions must be one of {POSITIONS}. Received: {positions=}.")
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.num_layers = num_layers
        self.num_decoder_layers = num_decoder_layers
        self.d_model = d_model
        self.ff_dim = ff_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.share_embeddings = share_embeddings
        self.tie_output = tie_output
        self.attention = attention
        self.cross_attention = cross_attention

        # === Embeddings ===
        policy = self.dtype_policy
        self.source_embedding = TokenEmbedding(
            source_vocab_size, d_model, dtype=policy, name="source_embedding"
        )
        self.target_embedding = self.source_embedding
        if target_vocab_size is not None or not share_embeddings:
            self.target_embedding = TokenEmbedding(
                self.num_target_pieces, d_model, dtype=policy, name="target_embedding"
            )
        self.source_positions = self._position_layer("source_positions")
        self.target_positions = self._position_layer("target_positions")
        self.source_dropout = Dropout(dropout, dtype=policy)
        self.target_dropout = Dropout(dropout, dtype=policy)

        # === Blocks ===
        block = dict(
            num_heads=num_heads,
            ff_dim=ff_dim,
            dropout=dropout,
            normalize_first=normalize_first,
            activation=activation,
            dtype=policy,
        )
        self.encoder_blocks = [
            EncoderBlock(
                **block,
                attention=self._self_attention(),
                rotary=positions == "rotary",
                name=f"encoder_block_{i}",
            )
            for i in range(num_layers)
        ]
        self.decoder_blocks = [
            DecoderBlock(
                **block,
                attention=self._self_attention(),
                cross_attention=self._cross_attention(),
                rotary=positions == "rotary",
                name=f"decoder_block_{i}",
            )
            for i in range(num_decoder_layers or num_layers)
        ]
        self.encoder_norm = self.decoder_norm = None
        if normalize_first:
            self.encoder_norm = LayerNormalization(dtype=policy, name="encoder_norm")
            self.decoder_norm = LayerNormalization(dtype=policy, name="decoder_norm")

        # === Output ===
        self.output_layer = None
        if not tie_output:
            self.output_layer = keras.layers.Dense(
                self.num_target_pieces, use_bias=False, dtype=policy, name="output_layer"
            )

    @classmethod
    def from_preset(cls, name, source_vocab_size, **overrides):
        """Returns the model of a preset ("tiny", "base", "big") for a vocabulary, with changes."""
        from keras_transformer.config import Config

        return cls(source_vocab_size, **{**Config.from_preset(name).model, **overrides})

    @property
    def num_target_pieces(self):
        """V, of the target vocabulary, shared or not."""
        shared = self.target_vocab_size is None
        return self.source_vocab_size if shared else self.target_vocab_size

    def _position_layer(self, name):
        if self.positions == "learned":
            return LearnedPositions(self.max_length, dtype=self.dtype_policy, name=name)
        if self.positions == "sinusoidal":
            return SinusoidalPositions(dtype=self.dtype_policy, name=name)
        return None  # they are the self-attention's

    def _self_attention(self):
        layer = attention_by_name(self.attention, dtype=self.dtype_policy, name="attention")
        if self.positions == "alibi":
            if not isinstance(layer, ScaledDotProductAttention):
                raise ValueError(
                    "ALiBi adds to the scores, which linear attention does not have. Received: "
                    f"positions='alibi', attention={self.attention!r}. Choose other positions."
                )
            layer.alibi = True
        return layer

    def _cross_attention(self):
        layer = attention_by_name(self.cross_attention, dtype=self.dtype_policy, name="attention")
        if isinstance(layer, SparseAttention) or getattr(layer, "alibi", False):
            raise ValueError(
                f"cross_attention must be one of {', '.join(CROSS_ATTENTIONS)}: a source piece has "
                "no distance from a target piece. "
                f"Received: cross_attention={self.cross_attention!r}."
            )
        return layer

    def build(self, input_shape=None):
        """Makes the weights; every shape follows from the arguments, so none need be given."""
        hidden_shape = (None, None, self.d_model)
        for layer in (self.source_embedding, self.target_embedding):
            if not layer.built:
                layer.build((None, None))
        layers = [self.source_positions, self.target_positions, *self.encoder_blocks]
        layers += [self.encoder_norm, self.decoder_norm, self.output_layer]
        for layer in layers:
            if layer is not None:
                layer.build(hidden_shape)
        for block in self.decoder_blocks:
            block.build(hidden_shape, hidden_shape)
        self.built = True

    def call(self, inputs, return_attention_weights=False, training=False):
        source_ids, target_ids = inputs["source_ids"], inputs["target_ids"]
        encoder_output, encoder_weights = self._encode(
            source_ids, return_attention_weights, training
        )
        x = self._with_positions(self.target_embedding(target_ids), self.target_positions)
        x = self.target_dropout(x, training=training)
        decoder_weights, cross_weights = [], []
        for block in self.decoder_blocks:
            x = block(
                x,
                encoder_output,
                source_padding_mask=padding_mask(source_ids),
                return_attention_weights=return_attention_weights,
                training=training,
            )
            if return_attention_weights:
                x, block_decoder_weights, block_cross_weights = x
                decoder_weights.append(block_decoder_weights)
                cross_weights.append(block_cross_weights)
        x = self.decoder_norm(x) if self.normalize_first else x
        if not return_attention_weights:
            return self.predict_tokens(x)
        weights = {"encoder": encoder_weights, "decoder": decoder_weights, "cross": cross_weights}
        weights = {kind: layers for kind, layers in weights.items() if layers[0] is not None}
        return self.project(x), weights

    @staticmethod
    def _with_positions(x, positions):
        return x if positions is None else positions(x)

    def encode(self, source_ids):
        """Returns the encoder's output `(B, S, D)` of `source_ids` `(B, S)`, without dropout."""
        encoder_output, _ = self._encode(source_ids)
        return encoder_output

    def _encode(self, source_ids, return_attention_weights=False, training=False):
        x = self._with_positions(self.source_embedding(source_ids), self.source_positions)
        x = self.source_dropout(x, training=training)
        weights = []
        for block in self.encoder_blocks:
            x = block(
                x,
                padding_mask=padding_mask(source_ids),
                return_attention_weights=return_attention_weights,
                training=training,
            )
            if return_attention_weights:
                x, block_weights = x
                weights.append(block_weights)
        return (self.encoder_norm(x) if self.normalize_first else x), weights

    def decoding_weights(self):
        """Returns the weights that decoding reads in another form, `(tensor, [[tensor]])`.

        The output layer's as `(D, V)`, which products with few rows like best, and those of each
        block. To make them takes a millisecond: as long as two steps with one sentence.
        """
        if not self.built:
            self.build()
        blocks = [block.decoding_weights() for block in self.decoder_blocks]
        return ops.transpose(self.output_table()), blocks

    def start_decoding(self, source_ids, max_length, num_hypotheses=1, weights=None):
        """Encodes the source and makes room for the hypotheses.

        Args:
            source_ids: `(B, S)`, ended by the end token, padded with 0.
            max_length: number of steps that will be decoded at most, a Python int or an int scalar.
            num_hypotheses: N, hypotheses a sentence.
            weights: of `decoding_weights`; None: made anew.
        Returns:
            `(step_fn, memory, cache)`. The memory is what steps read of each sentence, a list of
            tensors `(B, ...)`; the cache what they write of each hypothesis, a list of tensors
            `(B * N, ...)`, where row b * N + n belongs to hypothesis n of sentence b.

            `step_fn(token_ids, step, cache, memory)` takes the tokens `(B, N)` at position `step`,
            an int scalar from 0 (where they are start tokens), and returns `(logits, cache)`: the
            `(B, N, V)` float32 that a whole pass has at that position, and the cache with it.
        """
        if not self.built:
            self.build()
        output_kernel, blocks_weights = self.decoding_weights() if weights is None else weights
        encoder_output = self.encode(source_ids)
        memory, cache = [], []
        blocks = []  # (block, its weights, its places in the memory and in the cache)
        for block, block_weights in zip(self.decoder_blocks, blocks_weights, strict=True):
            block_memory, block_cache = block.start_decoding(
                encoder_output, num_hypotheses, max_length, padding_mask(source_ids)
            )
            places = [
                slice(len(all_tensors), len(all_tensors) + len(tensors))
                for all_tensors, tensors in ((memory, block_memory), (cache, block_cache))
            ]
            blocks.append((block, block_weights, *places))
            memory += block_memory
            cache += block_cache

        def step_fn(token_ids, step, cache, memory):
            rows = ops.reshape(token_ids, (-1,))
            x = self.target_embedding(rows)
            if self.target_positions is not None:
                x = x + self.target_positions.encode(ops.reshape(step, (1,)))
            cache = list(cache)
            for block, block_weights, in_memory, in_cache in blocks:
                x, cache[in_cache] = block.decode_step(
                    x, step, cache[in_cache], memory[in_memory], num_hypotheses, block_weights
                )
            x = self.decoder_norm(x) if self.normalize_first else x
            logits = ops.cast(ops.matmul(x, output_kernel), "float32")
            return ops.reshape(logits, (-1, num_hypotheses, self.num_target_pieces)), cache

        return step_fn, memory, cache

    def project(self, hidden):
        if self.tie_output:
            return self.target_embedding.project(hidden)
        return self.output_layer(hidden)

    def output_table(self):
        if self.tie_output:
            return ops.cast(self.target_embedding.embeddings, self.compute_dtype)
        return ops.cast(ops.transpose(self.output_layer.kernel), self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "num_layers": self.num_layers,
            "num_decoder_layers": self.num_decoder_layers,
            "d_model": self.d_model,
            "ff_dim": self.ff_dim,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "normalize_first": self.normalize_first,
            "activation": self.activation,
            "positions": self.positions,
            "max_length": self.max_length,
            "share_embeddings": self.share_embeddings,
            "tie_output": self.tie_output,
            "attention": _plain(self.attention),
            "cross_attention": _plain(self.cross_attention),
        }


def _plain(attention):
    """Returns a name, or a dict that Keras has wrapped to watch it as the dict that it was."""
    return attention if isinstance(attention, str) else dict(attention)
