"""The order of all slots for a key: jump consistent hash, repeated until no slot is left."""

from collections.abc import Iterator

import jump

from hashing.key import mix


def succession(key: int, n: int) -> Iterator[int]:
    """Each of the slots 0..n-1 once, in the order in which they would take the key (a 64-bit hash).

    Lazy: the first slot costs one jump hash (Lamping & Veach 2014), each further one another jump hash and a `mix`. A
    slot that is skipped does not change the order of the others. So the work of a dead slot goes to its successors, and
    returns from them, while nothing else moves.

    >>> list(succession(0xD5ACEBE867B47F4D, 5))
    [0, 4, 1, 3, 2]
    """
    rest = list(range(n))
    h = key
    while rest:
        yield rest.pop(jump.hash(h, len(rest)))
        h = mix(h)
