"""The order of all slots for a key: jump consistent hash, repeated until no slot is left."""

from collections.abc import Iterator

import jump

from hashing.key import mix


def succession(key: int, n: int) -> Iterator[int]:
    """Yield each of the slots 0..n-1 once, in the order in which they would own the key (a 64-bit hash).

    Lazy: the first slot costs one jump hash (Lamping & Veach 2014), and each further slot another jump hash and a
    `mix`. Skipping a slot does not change the order of the others. So if a member is down, only its tasks move, to
    their next slots, and they return when it is up again.

    >>> list(succession(0xD5ACEBE867B47F4D, 5))
    [0, 4, 1, 3, 2]
    """
    rest = list(range(n))
    h = key
    while rest:
        yield rest.pop(jump.hash(h, len(rest)))
        h = mix(h)
