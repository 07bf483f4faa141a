"""The order in which a key's slots succeed one another: jump consistent hash, carried to the end."""

from collections.abc import Iterator

import jump

from hashing.key import mix


def succession(key: int, n: int) -> Iterator[int]:
    """Each of the slots 0..n-1 once, in the order in which they would take the key (a 64-bit hash).

    Lazy: the first costs one jump hash (Lamping & Veach 2014), each further one another and a `mix`. Whoever
    is passed over changes nothing in the order of the others, so that the work of a dead slot goes to its
    successors, and comes back from them, while nothing else moves.

    >>> list(succession(0xD5ACEBE867B47F4D, 5))
    [0, 4, 1, 3, 2]
    """
    rest = list(range(n))
    h = key
    while rest:
        yield rest.pop(jump.hash(h, len(rest)))
        h = mix(h)
