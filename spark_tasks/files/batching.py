"""Cuts the new files of an ingest into batches, by their number and their bytes. Pure.

The cut depends only on the order and the sizes of the files: an attempt that goes on after batch 3 cuts the files that
are left as the attempt before it would have, since each batch is closed without a look at the files behind it.
"""

from collections.abc import Sequence
from typing import Final

from spark_tasks.files.listing import Source
from spark_tasks.storage.packing import packed

BATCH_FILES: Final = 500
"""The most files in a batch by default: while a batch is read, all its local files are open."""

BATCH_BYTES: Final = 2**30
"""The most bytes in a batch by default: what a failover repeats is about a minute's work of two cores."""


def batches(
    sources: Sequence[Source], files_max: int = BATCH_FILES, bytes_max: int = BATCH_BYTES
) -> list[tuple[Source, ...]]:
    """`sources` in their order, as few batches as go within both limits.

    A file of more than `bytes_max` is a batch of its own. Sizes are those of the files as they are, compressed or not.

    >>> [len(batch) for batch in batches([Source(str(n), 3 * 2**20) for n in range(72)])]
    [72]
    >>> [len(batch) for batch in batches([Source("a", 5), Source("b", 6), Source("c", 40), Source("d", 1)], 9, 10)]
    [1, 1, 1, 1]
    """
    return list(packed(sources, bytes_max, files_max))
