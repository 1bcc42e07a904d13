"""Which pairs go into a batch together: pairs of about the same length, as many as fit a budget."""

import numpy as np

LENGTH_GROWTH = 1.25  # from one static length to the next
MULTIPLE = 8  # of static lengths, and of the static row counts that are as large
NOISE = 1.0  # pieces; moves pairs within a length, where it costs little padding


def plan_batches(source_lengths, target_lengths, batch_tokens, rng=None):
    """Returns a list of int arrays, the pairs of each batch; each pair is in one.

    Pairs are sorted by their longer side, the longest first, then by how much longer the source
    is, there and back again by turns, so that neighbours are alike on both sides. They are cut
    where the next pair would exceed the budget; the last two batches are shared evenly.

    Args:
        source_lengths, target_lengths: int arrays, ids of each pair.
        batch_tokens: a batch of n pairs with longest side m has `n * m <= batch_tokens`.
        rng: `numpy.random.Generator` that blurs the order, sets off the cuts and shuffles the
            batches; None for a plan with nothing random.
    """
    longer = np.maximum(source_lengths, target_lengths)
    excess = source_lengths - target_lengths
    if rng is not None:
        excess = excess + rng.uniform(-NOISE, NOISE, len(excess))
    order = np.lexsort((np.where(longer % 2 == 0, excess, -excess), -longer))
    # The first batch is a random part of a full one, or else the cuts hardly move.
    share = 1.0 if rng is None else rng.uniform(0.5, 1.0)
    batches = _cut(order, longer, lambda length: batch_tokens // length, share)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def plan_static_batches(source_lengths, target_lengths, shapes, rng=None):
    """Returns a list of `(pairs, (rows, length))`, the shape being the least that holds them.

    Args:
        source_lengths, target_lengths: int arrays, ids of each pair.
        shapes: what `static_shapes` returns.
        rng: as in `plan_batches`.
    """
    rows = {length: num_rows for num_rows, length in shapes}
    ceilings = np.array(sorted(rows))
    longer = np.maximum(source_lengths, target_lengths)
    length = ceilings[np.searchsorted(ceilings, longer)]
    order = np.lexsort((-longer if rng is None else rng.random(len(longer)), -length))
    batches = [
        (pairs, (rows[length[pairs[0]]], int(length[pairs[0]])))
        for pairs in _cut(order, length, rows.get, first_share=1.0)
    ]
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def static_shapes(batch_tokens, max_length):
    """Returns the few `(rows, length)` of static batches, the longest length first.

    Args:
        batch_tokens: `rows * length` is at most that, and nearly that.
        max_length: the longest length; at most `batch_tokens`.
    """
    shapes = []
    length = max_length
    while length > 0:
        num_rows = batch_tokens // length
        if num_rows >= MULTIPLE:
            num_rows -= num_rows % MULTIPLE
        shapes.append((num_rows, length))
        length = int(length / LENGTH_GROWTH) // MULTIPLE * MULTIPLE
    return shapes


def _cut(order, length, max_rows, first_share):
    """Cuts `order`, which runs from long to short, into batches.

    Args:
        order: int array, the pairs.
        length: int array, padded length of each pair.
        max_rows: function of a batch's padded length, that of its first pair.
        first_share: how much of a full batch the first one is.
    """
    cuts = [0]
    share = first_share
    while cuts[-1] < len(order):
        rows = max_rows(int(length[order[cuts[-1]]]))
        cuts.append(cuts[-1] + max(1, round(share * rows)))
        share = 1.0
    cuts[-1] = len(order)
    # A step weighs the same however few pairs it has, so no batch should be small. Sharing keeps
    # the budget: the last batch gets fewer rows than the one before it had, and no longer ones.
    if len(cuts) > 2 and cuts[-1] - cuts[-2] < cuts[-2] - cuts[-3]:
        cuts[-2] = (cuts[-3] + cuts[-1] + 1) // 2
    return np.split(order, cuts[1:-1])
