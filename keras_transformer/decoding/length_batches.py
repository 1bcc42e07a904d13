"""Batches of inputs of similar length, which contain little padding."""


def length_batches(lengths, batch_size, num_threads=1):
    """Returns lists of indices of inputs, the longest inputs first.

    Args:
        lengths: list of int, in any unit. Inputs of length 0 are left out.
        batch_size: maximum number of indices in a list.
        num_threads: number of threads that share the lists; few inputs are divided among them.
    """
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    size = max(1, min(batch_size, -(-len(order) // num_threads)))
    return [order[i : i + size] for i in range(0, len(order), size)]
