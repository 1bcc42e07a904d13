"""Batches of inputs of similar length, which contain little padding."""


def length_batches(lengths, batch_size):
    """Returns lists of indices of inputs, the longest inputs first.

    Args:
        lengths: list of int, in any unit. Inputs of length 0 are left out.
        batch_size: maximum number of indices in a list.
    """
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
