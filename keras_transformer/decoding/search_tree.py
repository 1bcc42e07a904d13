"""The tree of a beam search: every hypothesis that was in the beam, and what became of it.

Shapes: P prompt length, N hypotheses (the beam), V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.beam_search import BeamSearch
from keras_transformer.decoding.hypotheses import IMPOSSIBLE, DecodingStart
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.scoring import normalized_score
from keras_transformer.special_ids import OUR_SPECIAL_IDS, SpecialIds
from keras_transformer.types import Tensor


class SearchNode(NamedTuple):
    """A hypothesis: that of its parent, and one token more."""

    step: int
    """Number of tokens; 0 for the root, the empty hypothesis."""
    parent: int | None
    """Index of the node that it continues; None for the root."""
    token: Any
    """The last token: its id, or its text in a tree of `Translator.search_tree`. The root has the
    last token of the prompt, or the text ""."""
    log_prob: float
    """Summed log-probability."""
    score: float | None
    """`log_prob / length_penalty` of a finished hypothesis; None for others."""
    state: str
    """"finished": the end token has ended it. "live": it was continued, or it is the answer, cut at
    the limit. "dropped": the beam has kept none of its continuations, or the search was over."""


class SearchTree(NamedTuple):
    """The hypotheses of one beam search, in the order of the steps."""

    nodes: list[SearchNode]
    best: int
    """Index of the node that ends the answer."""


def search_tree(
    step_fn: Callable[..., Any],
    state: Any,
    prompts: Tensor,
    limits: Tensor,
    max_length: Any,
    beam_size: int,
    length_penalty: float = 0.6,
    special_ids: SpecialIds = OUR_SPECIAL_IDS,
    length_normalization: str = "gnmt",
    keep_beam_full: bool = False,
    processors: Sequence[Processor] = (),
) -> SearchTree:
    """Returns the `SearchTree` of the search that finds the best output for one input.

    Runs the steps of `beam_search` with `n_best=1` one by one, outside of any compiled function.

    Args:
        step_fn, state, prompts, limits, max_length: see `beam_search`; one input, with a limit of
            at least 1.
        beam_size, length_penalty, special_ids, length_normalization, keep_beam_full, processors:
            see `beam_search`.
    Raises:
        ValueError: beam_size or length_penalty outside its range.
    """
    step_fn = backend.without_gradients(step_fn)
    start = DecodingStart(step_fn, state, prompts, limits, max_length)
    normalization = length_penalty, length_normalization
    search = BeamSearch(start, special_ids, beam_size, normalization, 1, keep_beam_full, processors)
    prompt_steps = search.prompts.last_step()
    nodes = [SearchNode(0, None, int(prompts[0][prompt_steps]), 0.0, None, "dropped")]
    live = [0] * beam_size  # the node of each live hypothesis

    def extend(step, beam, cache, memory):
        candidates, cache = search.propose(step, beam, cache, memory)
        if step >= prompt_steps:
            live[:] = _grow(nodes, live, candidates, normalization)[:beam_size]
        return search.choose(beam, candidates, memory), cache

    beam = search.start()
    for _, extended in search.one_by_one(extend, beam):
        beam = extended
    return _with_answer(nodes, search.answer(beam), special_ids.pad)


def _grow(nodes, live, candidates, normalization):
    """Appends the candidates of a step to the nodes; returns the node of each candidate."""
    tokens, log_probs, parents, ends = (
        ops.convert_to_numpy(part)[0].tolist()
        for part in (candidates.tokens, candidates.log_probs, candidates.parents, candidates.ends)
    )
    places = []
    for token, log_prob, parent, end in zip(tokens, log_probs, parents, ends, strict=True):
        if log_prob < IMPOSSIBLE / 2:  # fewer hypotheses are possible: no node continues this one
            places.append(None)
            continue
        places.append(len(nodes))
        parent = live[parent]
        step, score = nodes[parent].step + 1, None
        if end:
            score = float(normalized_score(log_prob, step, *normalization))
        nodes[parent] = nodes[parent]._replace(state="live")
        state = "finished" if end else "dropped"
        nodes.append(SearchNode(step, parent, token, log_prob, score, state))
    return places


def _with_answer(nodes, answer, pad_id):
    """Returns the tree, with the node that the tokens of the answer lead to."""
    children = {(node.parent, node.token): index for index, node in enumerate(nodes)}
    best = 0
    for token in ops.convert_to_numpy(answer.ids)[0, 0].tolist():
        if token == pad_id:
            break
        best = children[best, token]
    if nodes[best].state == "dropped":
        nodes[best] = nodes[best]._replace(state="live")
    return SearchTree(nodes, best)
