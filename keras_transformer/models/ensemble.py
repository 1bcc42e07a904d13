"""Several translation models as one, whose predictions are averaged.

Shapes: B batch, S source length, T target length, V target vocabulary, N hypotheses of each source
(in decoding), H heads.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.decoding import DecodingStart, Shortlist
from keras_transformer.errors import InputError
from keras_transformer.layers import DecodingState
from keras_transformer.layers.base import config_of_shared
from keras_transformer.models.base import BaseModel, build_parts
from keras_transformer.models.translation_model import TranslationModel
from keras_transformer.types import Self, Shape, Tensor

MEANS = ("probabilities", "log_probabilities")


@keras.saving.register_keras_serializable("keras_transformer")
class Ensemble(BaseModel):
    """Predicts the mean of what several models predict, for each token and in each decoding step.

    The models may differ in size and class. Their vocabularies must be the same, with the same ids.

    Args:
        members: list of `TranslationModel`, such as `Transformer`.
        mean: "probabilities": a token's probability is the arithmetic mean of those of the members,
            and the logits are its logarithm. "log_probabilities": it is proportional to their
            geometric mean, so that every member can veto a token; the logits are the mean of the
            members' logits.

    Call arguments:
        inputs, return_attention_weights, training: see `Transformer`.

    Returns:
        The logits `(B, T, V)`, float32, or a pair of them and the attention weights. Those are the
        heads of all members side by side, `(B, H of all, T, S)`, without what some member does not
        have, and of as many last layers as every member has.

    Raises:
        ValueError: no members, one that is no `TranslationModel`, vocabularies of different sizes,
            or an unknown mean.

    Example:
    >>> members = [Transformer(100, num_layers=n, d_model=16, num_heads=2) for n in (1, 2)]
    >>> source_ids, target_ids = np.array([[5, 6, 3]]), np.array([[2, 7]])
    >>> Ensemble(members)({"source_ids": source_ids, "target_ids": target_ids}).shape
    (1, 2, 100)
    """

    def __init__(
        self, members: Sequence[TranslationModel], mean: str = MEANS[0], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # as in `DecoderModel`
        _check_members(members)
        if mean not in MEANS:
            raise InputError(f"mean must be one of {MEANS}. Received: mean={mean!r}.")
        self.members = list(members)
        self.mean = mean
        self.build_when_made(dict.fromkeys(self.id_ranges, (None, None)))

    @property
    def source_vocab_size(self) -> int:
        """The size of the source vocabulary."""
        return self.members[0].source_vocab_size

    @property
    def output_vocab_size(self) -> int:
        """V, the size of the target vocabulary."""
        return self.members[0].output_vocab_size

    @property
    def id_ranges(self) -> dict[str, range]:
        return self.members[0].id_ranges

    @property
    def longest_input(self) -> int | None:
        """The smallest number of learned positions of a member; None: there is no end."""
        lengths = [member.longest_input for member in self.members]
        return min((length for length in lengths if length is not None), default=None)

    def longest_text(self, max_tokens: int) -> int:
        """Returns how many tokens of a given text all members can read, see `TranslationModel`."""
        return min(member.longest_text(max_tokens) for member in self.members)

    @property
    def gives_cross_weights(self) -> bool:
        """Whether the call can return the weights of the attention to the source."""
        return all(member.gives_cross_weights for member in self.members)

    @property
    def cross_heads(self) -> tuple[int, int]:
        """The number of layers and of heads whose weights of the attention the call returns."""
        if not self.gives_cross_weights:
            return 0, 0
        layers, heads = zip(*(member.cross_heads for member in self.members), strict=True)
        return min(layers), sum(heads)

    def build(self, input_shape: Shape | None = None) -> None:
        """Creates the weights. Their shapes follow from the members; `input_shape` is ignored."""
        build_parts(self, *((member, None) for member in self.members))

    def call(
        self,
        inputs: dict[str, Tensor],
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Any:
        options = dict(return_attention_weights=return_attention_weights, training=training)
        outputs = [member(inputs, **options) for member in self.members]
        if not return_attention_weights:
            return self._averaged(outputs)
        logits, weights = zip(*outputs, strict=True)
        return self._averaged(logits), _side_by_side(weights)

    def _averaged(self, logits):
        """Returns float32 logits of the mean prediction, from the logits of each member."""
        logits = [ops.cast(each, "float32") for each in logits]
        if self.mean == "log_probabilities":
            return sum(logits) / len(logits)  # the softmax is not changed by their normalizers
        probabilities = [ops.softmax(each) for each in logits]
        # With large logits, all probabilities of a token may be 0 in float32. The logarithm of
        # their mean is at least that of one of them divided by their number.
        best, best_probability = (
            ops.max(each, axis=-1, keepdims=True) for each in (logits[0], probabilities[0])
        )
        least = logits[0] + (ops.log(best_probability / len(logits)) - best)
        return ops.maximum(ops.log(sum(probabilities) / len(logits)), least)

    # === Step by step ===

    def decoding_weights(self) -> Any:
        """Returns the weights in the form that decoding reads, those of each member."""
        return [member.decoding_weights() for member in self.members]

    def start_decoding(
        self,
        source_ids: Tensor,
        max_length: int,
        num_hypotheses: int = 1,
        weights: Any = None,
        shortlist: Shortlist | None = None,
        prefixes: Tensor | None = None,
    ) -> DecodingStart:
        """Begins what all members do in `TranslationModel.start_decoding`, with its arguments."""
        weights = self.decoding_weights() if weights is None else weights
        if self.longest_input is not None:
            max_length = min(max_length, self.longest_input)
        starts = [
            member.start_decoding(source_ids, max_length, num_hypotheses, each, shortlist, prefixes)
            for member, each in zip(self.members, weights, strict=True)
        ]

        def step_fn(ids, step, state):
            states = map(DecodingState, state.cache, state.memory)
            found = [
                start.step_fn(ids, step, each) for start, each in zip(starts, states, strict=True)
            ]
            cache = [each.cache for _, each in found]
            return self._averaged([logits for logits, _ in found]), state._replace(cache=cache)

        states = [start.state for start in starts]
        limits = starts[0].limits
        for start in starts[1:]:  # after a prefix, members have different positions left
            limits = ops.minimum(limits, start.limits)
        return starts[0]._replace(
            step_fn=step_fn,
            state=DecodingState(
                [state.cache for state in states], [state.memory for state in states]
            ),
            limits=limits,
        )

    # === Saving ===

    def get_config(self) -> dict[str, Any]:
        members = [config_of_shared(member) for member in self.members]
        return {**super().get_config(), "members": members}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Returns the ensemble, with members that are built anew.

        Args:
            config: from `get_config`.
            custom_objects: dict from names to classes, as for `keras.models.load_model`.
        """
        members = [
            keras.saving.deserialize_keras_object(member, custom_objects)
            for member in config["members"]
        ]
        return super().from_config({**config, "members": members}, custom_objects)


def _check_members(members):
    if not members or not all(isinstance(member, TranslationModel) for member in members):
        raise InputError(
            "Expected models that translate, at least one. Received: "
            f"members={[type(member).__name__ for member in members]}. Name instances of "
            "Transformer or RnnSeq2Seq."
        )
    sizes = [(member.source_vocab_size, member.output_vocab_size) for member in members]
    if len(set(sizes)) > 1:
        raise InputError(
            "Expected members with one vocabulary, so that they predict the same tokens. Received: "
            f"source and target vocabularies of the sizes {sizes}. Train them with one tokenizer."
        )


def _side_by_side(weights):
    """Returns the attention weights of all members as one dict, see `Ensemble`.

    Args:
        weights: for each member, a dict from names to a list with one entry per layer.
    """
    found = {}
    for name in weights[0]:
        if all(name in each for each in weights):
            num_layers = min(len(each[name]) for each in weights)
            layers = zip(*(each[name][-num_layers:] for each in weights), strict=True)
            found[name] = [
                ops.concatenate([ops.cast(heads, "float32") for heads in of_all], axis=1)
                for of_all in layers
            ]
    return found
