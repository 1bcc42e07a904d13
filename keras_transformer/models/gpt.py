"""GPT, a language model (Radford et al., 2018 and 2019).

Shapes: B batch, T length, D d_model, H heads, V vocabulary, P prompt length, N hypotheses of each
prompt (in decoding).
"""

import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.config.presets import model_preset
from keras_transformer.decoding import BatchSearch, DecodingStart, stream
from keras_transformer.decoding.batch_search import remembered
from keras_transformer.decoding.sampling import check_sampling
from keras_transformer.errors import InputError, check_positive_integers, check_seed
from keras_transformer.layers import Decoder, TokenEmbedding
from keras_transformer.layers.base import plain
from keras_transformer.layers.stack import check_num_heads
from keras_transformer.models.base import build_parts
from keras_transformer.models.decoder_model import DecoderModel
from keras_transformer.special_ids import END_ID, PAD_ID, SpecialIds
from keras_transformer.types import Self, Shape, Tensor


@keras.saving.register_keras_serializable("keras_transformer")
class Gpt(DecoderModel):
    """A decoder without a source: computes the logits of each token from the tokens before it.

    Sources: Radford et al., 2018, "Improving Language Understanding by Generative Pre-Training",
    and 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2), section 2.3. The
    defaults are GPT-2 with 124 million parameters. There are two departures: initial weights are
    Keras's (Glorot), except in the tables; and there is no dropout on attention weights.

    For training, `data.TextWindows` cuts a text into inputs and labels. Padding may come after the
    last token of a row, where no token sees it.

    Args:
        vocab_size: V.
        num_layers: number of blocks.
        d_model: D, the width of the model.
        ff_dim: width of the feed-forward networks' inner layer; None: 4 D.
        num_heads: H, which must divide D.
        dropout: rate on the embeddings and on each sublayer's output.
        normalize_first: True for pre-norm as in GPT-2, False for post-norm as in the first GPT.
        activation: activation of the feed-forward networks. GPT-2 has an approximation of GELU,
            "gelu_tanh".
        positions: "learned" or "sinusoidal", which are added to the embeddings; or "rotary" or
            "alibi", which are applied within each self-attention.
        max_length: the context: the maximum number of tokens that learned positions allow. The
            others have no limit.
        tie_output: whether the output layer is the embedding or has its own weights.
        attention: the self-attention, see `Transformer`.
        layer_norm_epsilon: see `LayerNormalization`.
        pad_id: 0, as in the vocabularies of our tokenizers, whose ids 1 (unknown), 2 (start) and 3
            (end) are no text either; or -1, for a vocabulary in which every id is a token.
        end_id: the token that ends a text; None: the vocabulary has none, so that every output is
            as long as its limit.

    Call arguments:
        inputs: `(B, T)`, integers, padded at the end.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        The logits `(B, T, V)` of the token that follows each token, or a pair of them and
        {"decoder": `[(B, H, T, T)]`}, with one list entry per layer. Linear attention has no
        weights; the dict is then empty.

    Raises:
        ValueError: sizes below 1, num_heads not dividing d_model, unknown positions or attention,
            ALiBi with linear attention, special ids outside their ranges; in the call, ids of
            another rank or longer than learned positions.

    Example:
    >>> model = Gpt(100, num_layers=1, d_model=16, num_heads=2, max_length=8)
    >>> model(np.array([[5, 6, 7]])).shape
    (1, 3, 100)
    >>> [len(ids) for ids in model.generate([[5, 6], [7]], max_new_tokens=3, temperature=1.0)]
    """

    def __init__(
        self,
        vocab_size: int,
        num_layers: int = 12,
        d_model: int = 768,
        ff_dim: int | None = None,
        num_heads: int = 12,
        dropout: float = 0.1,
        normalize_first: bool = True,
        activation: str = "gelu_tanh",
        positions: str = "learned",
        max_length: int = 1024,
        tie_output: bool = True,
        attention: str | dict[str, Any] = "dense",
        layer_norm_epsilon: float = 1e-5,
        pad_id: int = PAD_ID,
        end_id: int | None = END_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_num_heads(d_model, num_heads)
        check_positive_integers(vocab_size=vocab_size)
        lowest = 0 if pad_id < 0 else END_ID  # the ids before it are no text
        is_id = isinstance(end_id, numbers.Integral) and lowest <= end_id < vocab_size
        if pad_id not in (PAD_ID, -1) or not (end_id is None or is_id):
            raise InputError(
                "pad_id must be 0 or -1, and end_id an id of the vocabulary, from 3 on with "
                "pad_id=0, or None. "
                f"Received: pad_id={pad_id}, end_id={end_id}, vocab_size={vocab_size}. Give a "
                "larger vocab_size, pad_id=-1 where every id is a token, or end_id=None where no "
                "token ends a text."
            )
        self.vocab_size = vocab_size
        self.num_layers = num_layers
        self.d_model = d_model
        self.ff_dim = ff_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.normalize_first = normalize_first
        self.activation = activation
        self.positions = positions
        self.max_length = max_length
        self.tie_output = tie_output
        self.attention = attention
        self.layer_norm_epsilon = layer_norm_epsilon
        self.pad_id = pad_id
        self.end_id = end_id

        policy = self.dtype_policy
        embedding = TokenEmbedding(
            vocab_size, d_model, scale=False, stddev=0.02, dtype=policy, name="embedding"
        )
        self.decoder = Decoder(
            embedding,
            num_layers,
            num_heads,
            4 * d_model if ff_dim is None else ff_dim,
            dropout=dropout,
            normalize_first=normalize_first,
            activation=activation,
            positions=positions,
            max_length=max_length,
            attention=plain(attention),
            cross_attention=None,
            layer_norm_epsilon=layer_norm_epsilon,
            dtype=policy,
            name="decoder",
        )
        if not tie_output:
            self.output_layer = self.new_output_layer(vocab_size)
        self._searches: dict[Any, BatchSearch] = {}
        self.build_when_made((None, None))

    @classmethod
    def from_preset(cls, name: str, vocab_size: int, **overrides: Any) -> Self:
        """Returns the model of a preset ("gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl").

        `overrides` replace arguments.
        """
        return cls(vocab_size, **{**model_preset(name, "gpt"), **overrides})

    @property
    def embedding(self) -> TokenEmbedding:
        """The `TokenEmbedding`."""
        return self.decoder.embedding

    @property
    def special_ids(self) -> SpecialIds:
        """The `SpecialIds` of the vocabulary."""
        return SpecialIds(self.pad_id, self.end_id)

    @property
    def id_ranges(self) -> dict[str, range]:
        return {"inputs": range(min(self.pad_id, 0), self.vocab_size)}

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the arguments; `input_shape` is ignored."""
        output = self.output_layer, (None, None, self.d_model)
        build_parts(self, (self.decoder, (None, None)), output)

    def call(
        self, inputs: Tensor, return_attention_weights: bool = False, training: bool = False
    ) -> Tensor:
        if len(getattr(inputs, "shape", ())) != 2:
            is_tensor = hasattr(inputs, "shape")
            received = f"shape={tuple(inputs.shape)}" if is_tensor else type(inputs).__name__
            raise InputError(f"inputs must be ids of shape (B, T). Received: {received}.")
        ids = self.ids_to_embed(inputs)
        x = self.decoder(ids, return_attention_weights=return_attention_weights, training=training)
        if not return_attention_weights:
            return self.predict_tokens(x)
        x, weights, _ = x
        return self.project(x), {"decoder": weights} if weights else {}

    def ids_to_embed(self, ids: Tensor) -> Tensor:
        """Returns int32 ids that the table has. Padding becomes a token, which no other sees."""
        return ops.maximum(ops.cast(ids, "int32"), 0)

    # === Generation ===

    def start_decoding(
        self, prompts: Tensor, max_length: int, num_hypotheses: int = 1, weights: Any = None
    ) -> DecodingStart:
        """Returns what a search that continues prompts begins with.

        With learned positions a text ends where the context does, so a prompt of p tokens is
        continued by at most `self.max_length - p + 1`; the last of them is not read any more. An
        empty prompt, or one that is longer than the context, has an output of length 0.

        Without an end token every output has as many tokens as its limit. It is not `finished`, and
        its score is its log-probability divided by the length penalty of that many tokens.

        Args:
            prompts: `(B, P)`, integers, padded at the end.
            max_length: maximum tokens of an output, including the end token, without the prompt; an
                int.
            num_hypotheses: N, hypotheses of each prompt.
            weights: from `decoding_weights`; None: computed here.
        Returns:
            `DecodingStart`.
        """
        weights = self.decoding_weights() if weights is None else weights
        prompts = ops.cast(prompts, "int32")
        num_prompts, width = ops.shape(prompts)
        lengths = ops.sum(ops.cast(ops.not_equal(prompts, self.pad_id), "int32"), axis=1)
        limits = ops.where(lengths > 0, max_length, 0)
        if self.positions == "learned":
            max_length = min(max_length, self.max_length)
            limits = ops.minimum(limits, ops.maximum(self.max_length - lengths + 1, 0))
        state = self.decoder.start_decoding(num_prompts * num_hypotheses, width - 1 + max_length)

        return self.decoding_start(state, prompts, limits, max_length, num_hypotheses, weights)

    def generate(
        self,
        prompts: Sequence[Sequence[int] | np.ndarray],
        max_new_tokens: int = 100,
        beam_size: int = 1,
        length_penalty: float = 0.6,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        batch_size: int = 64,
    ) -> list[np.ndarray]:
        """Continues prompts, with greedy search, beam search or sampling.

        `decoding.BatchSearch` and `decoding.decode` give scores and the n best outputs too.

        Args:
            prompts: list of lists of ids, of any lengths from 1 to the context.
            max_new_tokens: maximum tokens that are added to a prompt, including the end token. With
                learned positions a text also ends with the context, see `start_decoding`.
            beam_size, length_penalty: see `decoding.beam_search`; 1: greedy search.
            temperature, top_k, top_p: see `decoding.sample`; temperature None: no sampling. With
                another, one text is drawn, and beam_size has no effect.
            seed: int from 0 for sampling.
            batch_size: maximum number of prompts that are continued together.
        Returns:
            List of int32 arrays: each prompt and its continuation, with the end token if the model
            has chosen it.
        Raises:
            ValueError: an empty prompt, one longer than the context, ids outside the vocabulary, or
                an argument outside its range.
        """
        check_positive_integers(max_new_tokens=max_new_tokens, beam_size=beam_size)
        if not isinstance(prompts, Iterable):
            raise InputError(
                "Expected prompts, a list of lists of ids. "
                f"Received: prompts={prompts!r:.80}. Put a single prompt in a list."
            )
        check_sampling(temperature, top_k, top_p)
        check_seed(seed)
        rows = [self._checked_prompt(prompt) for prompt in prompts]
        if not self.built:  # a compiled search cannot create weights
            self.build()
        config = DecodingConfig(
            beam_size=int(beam_size), length_penalty=length_penalty, max_length=int(max_new_tokens)
        )
        settings = config, batch_size
        search = remembered(self._searches, settings, lambda: BatchSearch(self, *settings))
        if temperature is None:
            results = search.search(rows)
        else:
            results = search.sample(rows, temperature, top_k, top_p, seed)
        texts = list(rows)
        for indices, found in results:
            for i, ids, length in zip(indices, found.ids, found.lengths, strict=True):
                texts[i] = np.concatenate([rows[i], ids[0, : length[0]]])
        return texts

    def stream(
        self,
        prompt: Sequence[int] | np.ndarray,
        max_new_tokens: int = 100,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> Iterator[int]:
        """Returns an iterator over the ids that continue one prompt, each as soon as it is chosen.

        The ids are those that `generate` adds to this prompt alone, with the same arguments.

        Args:
            prompt: list of ids.
            max_new_tokens, temperature, top_k, top_p, seed: see `generate`.
        Raises:
            ValueError: as by `generate`.
        """
        check_positive_integers(max_new_tokens=max_new_tokens)
        ids = self._checked_prompt(prompt)[None]
        return stream(self, ids, max_new_tokens, temperature, top_k, top_p, seed=seed)

    def _checked_prompt(self, prompt):
        prompt = np.asarray(prompt)
        limit = self.max_length if self.positions == "learned" else None
        if prompt.ndim != 1 or not len(prompt) or (limit is not None and len(prompt) > limit):
            expected = "" if limit is None else f", at most {limit}, the context"
            raise InputError(
                f"Expected a prompt of at least one id{expected}. "
                f"Received: prompt.shape={prompt.shape}. Shorten it, or begin with a start token."
            )
        lowest = 1 if self.pad_id == PAD_ID else 0
        if not np.issubdtype(prompt.dtype, np.integer) or (
            prompt.min() < lowest or prompt.max() >= self.vocab_size
        ):
            raise InputError(
                f"Expected ids from {lowest} to {self.vocab_size - 1}. Received: prompt={prompt}."
            )
        return prompt.astype("int32")
