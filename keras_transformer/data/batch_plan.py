"""Divides sentence pairs into batches of similar lengths, each with about as many tokens.

The batches of a search come from `decoding.length_batches`. They have a fixed number of inputs, are
not random and need no equal weight: the two have only the sorting in common.
"""

import numpy as np

from keras_transformer.errors import InputError

NUM_SHAPES = 5  # of static batches, unless another number is asked for
MULTIPLE = 8  # static lengths are multiples of it, and row counts that are at least as large
NOISE = 1.0  # in tokens; reorders pairs of the same length, which adds little padding


def check_weights(weights, sizes):
    """Raises `InputError` where the weights of corpora leave no pair to an epoch.

    Args:
        weights: see `drawn_pairs`.
        sizes: int array, number of pairs of each corpus.
    """
    if max(sizes * np.array(weights)) < 1:
        raise InputError(
            "Expected weights that leave a pair to each epoch. Received: "
            f"weight={', '.join(f'{weight:g}' for weight in weights)} for "
            f"{', '.join(map(str, sizes))} pairs. Raise a weight."
        )


def drawn_pairs(part_of, weights, seed, epoch):
    """Returns the pairs of an epoch, in ascending order; a pair may be in it several times.

    A corpus is read in one pass after the other, each in a new random order. An epoch takes the
    next `weight * num_pairs` of them, so that over the epochs all its pairs are equally frequent.

    Args:
        part_of: int array, the index in `weights` of the corpus of each pair.
        weights: how often an epoch has each pair of a corpus, on average.
        seed, epoch: int.
    """
    drawn = [np.zeros(0, int)]
    for number, weight in enumerate(weights):
        pairs = np.flatnonzero(part_of == number)
        begin, end = (round(each * weight * len(pairs)) for each in (epoch, epoch + 1))
        while begin < end:
            index, first = divmod(begin, len(pairs))
            order = np.random.default_rng([seed, index, number, 1]).permutation(pairs)
            drawn.append(order[first : first + end - begin])
            begin += len(drawn[-1])
    return np.sort(np.concatenate(drawn))


def plan_batches(source_lengths, target_lengths, batch_tokens, rng=None):
    """Returns a list of int arrays, the pairs of each batch. Each pair is in exactly one batch.

    Pairs are sorted by their longer side, the longest first. Among equals, they are sorted by
    source length minus target length, alternately in ascending and descending order, so that
    neighbours have similar lengths on both sides. A batch ends before the pair that would exceed
    `batch_tokens`; the last two batches share their pairs evenly.

    Args:
        source_lengths, target_lengths: int arrays, number of ids of each pair.
        batch_tokens: a batch of n pairs with longest side m has `n * m <= batch_tokens`.
        rng: `numpy.random.Generator` that adds noise to the order, shifts the boundaries of the
            batches and shuffles the batches; None for a plan without randomness.
    """
    longer = np.maximum(source_lengths, target_lengths)
    excess = source_lengths - target_lengths
    if rng is not None:
        excess = excess + rng.uniform(-NOISE, NOISE, len(excess))
    order = np.lexsort((np.where(longer % 2 == 0, excess, -excess), -longer))
    # The first batch is a random part of a full one; otherwise the boundaries would hardly move.
    share = 1.0 if rng is None else rng.uniform(0.5, 1.0)
    batches = _cut(order, longer, lambda length: batch_tokens // length, share)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def plan_static_batches(source_lengths, target_lengths, shapes, rng=None):
    """Returns a list of `(pairs, (rows, length))`, where length is the smallest that fits them.

    Args:
        source_lengths, target_lengths: int arrays, number of ids of each pair.
        shapes: from `static_shapes`.
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


def static_shapes(batch_tokens, lengths, max_length, num_shapes=NUM_SHAPES):
    """Returns the few `(rows, length)` of static batches with the least padding, the longest first.

    Args:
        batch_tokens: maximum of `rows * length`, which comes close to it.
        lengths: int array, number of ids of the longer side of each pair.
        max_length: the largest length, of pairs that may be longer than these; at most
            `batch_tokens`.
        num_shapes: the most that there may be.
    """
    ceilings = np.append(np.arange(MULTIPLE, max_length, MULTIPLE), max_length)
    num_below = np.searchsorted(np.sort(lengths), ceilings, side="right")
    # for each ceiling, how long all pairs below it become with the best of so many ceilings
    least = ceilings * num_below
    best = [[length] for length in ceilings.tolist()]
    is_lower = ceilings[:, None] < ceilings
    for _ in range(num_shapes - 1):
        total = least[:, None] + ceilings * (num_below - num_below[:, None])
        total = np.where(is_lower, total, np.iinfo(total.dtype).max)
        lower, less = total.argmin(axis=0), total.min(axis=0)
        best = [
            [*best[lower[i]], chosen[-1]] if less[i] < least[i] else chosen
            for i, chosen in enumerate(best)
        ]
        least = np.minimum(least, less)
    rows = {length: batch_tokens // length for length in best[-1][::-1]}
    return [(n - n % MULTIPLE if n >= MULTIPLE else n, length) for length, n in rows.items()]


def _cut(order, length, max_rows, first_share):
    """Cuts `order`, which is sorted from long to short, into batches.

    Args:
        order: int array, the pairs.
        length: int array, padded length of each pair.
        max_rows: function from the padded length of a batch (that of its first pair) to its rows.
        first_share: size of the first batch, as a fraction of a full one.
    """
    cuts = [0]
    share = first_share
    while cuts[-1] < len(order):
        rows = max_rows(int(length[order[cuts[-1]]]))
        cuts.append(cuts[-1] + max(1, round(share * rows)))
        share = 1.0
    cuts[-1] = len(order)
    # Every step has the same weight, even with few pairs, so no batch should be small. Sharing does
    # not exceed `batch_tokens`: the last batch gets fewer rows than the one before it had, and none
    # that are longer.
    if len(cuts) > 2 and cuts[-1] - cuts[-2] < cuts[-2] - cuts[-3]:
        cuts[-2] = (cuts[-3] + cuts[-1] + 1) // 2
    return np.split(order, cuts[1:-1])
