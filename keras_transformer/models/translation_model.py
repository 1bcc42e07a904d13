"""What models that translate have in common.

Shapes: B batch, S source length, T target length, D d_model, V target vocabulary, N hypotheses of
each source (in decoding).
"""

from typing import Any

from keras import ops

from keras_transformer.config.presets import model_preset
from keras_transformer.decoding import DecodingStart, Shortlist
from keras_transformer.layers import TokenEmbedding
from keras_transformer.models.decoder_model import DecoderModel, two_inputs
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID
from keras_transformer.types import Self, Tensor


def source_and_target(inputs):
    """Returns the ids of the call's inputs, `(B, S)` and `(B, T)`, see `two_inputs`."""
    return two_inputs(inputs, source_ids="(B, S)", target_ids="(B, T)")


def output_limits(source_ids, max_length):
    """Returns the limit of each output, and the largest limit that a batch of width S can have.

    Args:
        source_ids: `(B, S)` int32, each row ended by the end token and padded with 0.
        max_length: int, maximum tokens of any output.
    Returns:
        `(limits, longest)`. `limits`, `(B,)` int32: min(2 s + 10, max_length) for a source of s
        tokens, where s does not include the end token, but the limit does. `longest`:
        min(2 S + 10, max_length), an int if S is static, otherwise an int scalar.
    """
    is_token = ops.not_equal(source_ids, PAD_ID) & ops.not_equal(source_ids, END_ID)
    limits = 2 * ops.sum(ops.cast(is_token, "int32"), axis=1) + 10
    limits = ops.minimum(limits, max_length)
    width = 2 * ops.shape(source_ids)[1] + 10  # not from the limits: JAX needs it while it traces
    if isinstance(width, int):
        return limits, min(width, max_length)
    return limits, ops.minimum(width, max_length)


class TranslationModel(DecoderModel):
    """An encoder, a decoder and an output layer, from source and target ids to logits.

    A subclass has the attributes `encoder`, those of a `DecoderModel` and those below, and the
    methods `call` and `read_source`.

    Attributes:
        NAME: the name of the model in a config.
        ATTENTION_SETTINGS: the arguments of the constructor that `attention_from_config` reads.
        source_vocab_size, target_vocab_size, d_model, share_embeddings, tie_output: see
            `Transformer`.
    """

    NAME: str
    ATTENTION_SETTINGS: tuple[str, ...] = ()

    @classmethod
    def from_preset(cls, name: str, source_vocab_size: int, **overrides: Any) -> Self:
        """Returns the model of a preset, such as "tiny"; `overrides` replace arguments."""
        arguments = {**model_preset(name, cls.NAME), **overrides}
        return cls(source_vocab_size, **arguments)  # type: ignore[call-arg]  # of the subclass

    @property
    def source_embedding(self) -> TokenEmbedding:
        """The `TokenEmbedding` of the source."""
        return self.encoder.embedding

    @property
    def target_embedding(self) -> TokenEmbedding:
        """The `TokenEmbedding` of the target; that of the source where both share one table."""
        return self.decoder.embedding

    @property
    def output_vocab_size(self) -> int:
        """V, the size of the target vocabulary, which may be shared with the source."""
        shared = self.target_vocab_size is None
        return self.source_vocab_size if shared else self.target_vocab_size

    @property
    def id_ranges(self) -> dict[str, range]:
        sizes = self.source_vocab_size, self.output_vocab_size
        return dict(zip(("source_ids", "target_ids"), map(range, sizes), strict=True))

    @property
    def longest_input(self) -> int | None:
        """The number of learned positions of an input, source or target; None: there is no end."""
        return None

    def longest_text(self, max_tokens: int) -> int:
        """Returns how many tokens of a given text can be read: `max_tokens`, or fewer.

        The end token comes after them, and learned positions need one for it.
        """
        longest = self.longest_input
        return max_tokens if longest is None else min(max_tokens, max(1, longest - 1))

    @property
    def gives_cross_weights(self) -> bool:
        """Whether the call can return the weights of the attention to the source."""
        return self.decoder.gives_cross_weights

    @property
    def cross_heads(self) -> tuple[int, int]:
        """The number of layers and of heads whose weights of the attention the call returns."""
        return self.decoder.cross_heads

    @property
    def can_be_guided(self) -> bool:
        """Whether a head of the attention to the source can be trained to align."""
        return False

    def new_embeddings(self, scale: bool = True) -> tuple[TokenEmbedding, TokenEmbedding]:
        """Returns the embeddings of source and target, which may be the same layer.

        Args:
            scale: see `TokenEmbedding`.
        """
        options = dict(d_model=self.d_model, scale=scale, dtype=self.dtype_policy)
        source_embedding = TokenEmbedding(
            self.source_vocab_size, **options, name="source_embedding"
        )
        if self.target_vocab_size is None and self.share_embeddings:
            return source_embedding, source_embedding
        return source_embedding, TokenEmbedding(
            self.output_vocab_size, **options, name="target_embedding"
        )

    def read_source(self, source_ids: Tensor) -> dict[str, Tensor]:
        """Returns what the decoder's `start_decoding` reads of `source_ids` `(B, S)`: arguments."""
        raise NotImplementedError

    def start_decoding(
        self,
        source_ids: Tensor,
        max_length: int,
        num_hypotheses: int = 1,
        weights: Any = None,
        shortlist: Shortlist | None = None,
        prefixes: Tensor | None = None,
    ) -> DecodingStart:
        """Encodes the source and returns what a search begins with.

        Args:
            source_ids: `(B, S)`, integers, each row ended by the end token and padded with 0.
            max_length: maximum tokens of an output, including the end token; an int. The output
                for a source of s tokens has at most 2 s + 10.
            num_hypotheses: N, hypotheses of each source.
            weights: from `decoding_weights`; None: computed here.
            shortlist: the tokens to choose from, see `decode`; None: all tokens.
            prefixes: `(B, P)`, integers, padded at the end: tokens that the outputs continue; they
                count neither for the length nor for the score. None: the outputs begin anew.
        Returns:
            `DecodingStart`.
        """
        weights = self.decoding_weights() if weights is None else weights
        source_ids = ops.cast(source_ids, "int32")
        num_sources = ops.shape(source_ids)[0]
        prompts = ops.full((num_sources, 1), START_ID, dtype="int32")
        if prefixes is not None:
            prompts = ops.concatenate([prompts, ops.cast(prefixes, "int32")], axis=1)
        if self.longest_input is not None:  # of the learned positions
            max_length = min(max_length, self.longest_input)
        limits, max_length = output_limits(source_ids, max_length)
        if prefixes is not None and self.longest_input is not None:
            num_before = ops.sum(ops.cast(ops.not_equal(prompts[:, 1:], PAD_ID), "int32"), axis=1)
            limits = ops.minimum(limits, ops.maximum(self.longest_input - num_before, 0))
        num_steps = max_length + ops.shape(prompts)[1] - 1
        state = self.decoder.start_decoding(
            num_sources * num_hypotheses, num_steps, **self.read_source(source_ids)
        )

        return self.decoding_start(
            state, prompts, limits, max_length, num_hypotheses, weights, shortlist
        )
