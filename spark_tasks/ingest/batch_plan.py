"""What an ingest's checkpoint says of a batch before the batch is read. Pure."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from spark_tasks.files.listing import Source

DIGEST_CHARS: Final = 32
"""The length of a digest in a checkpoint: a checkpoint is replicated, and a batch may have 10,000 files."""


def planned(batch: int, files: Sequence[Source]) -> dict[str, Any]:
    """The plan of a batch (JSON): its number, the number and the bytes of its files, and a digest of their list.

    Two batches have the same plan if they have the same files, with the same sizes, in the same order.

    >>> planned(7, [Source("/in/a.csv", 3), Source("/in/b.csv", 4)])  # doctest: +ELLIPSIS
    {'batch': 7, 'files': 2, 'bytes': 7, 'digest': '...'}
    """
    listed = json.dumps([(file.path, file.size_bytes) for file in files]).encode()
    return {
        "batch": batch,
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
        "digest": sha256(listed).hexdigest()[:DIGEST_CHARS],
    }


def again(before: Any, plan: dict[str, Any]) -> str:
    """What the checkpoint `before` of an earlier attempt says of this batch, as a clause for the log; often nothing.

    >>> again({"plan": {"batch": 7, "digest": "x"}}, {"batch": 7, "digest": "x"})
    ', as it was planned before'
    >>> again(None, {"batch": 7, "digest": "x"})
    ''
    """
    was = before.get("plan") if isinstance(before, dict) else None
    if not isinstance(was, dict) or was.get("batch") != plan["batch"]:
        return ""
    if was.get("digest") == plan["digest"]:
        return ", as it was planned before"
    return f"; it was planned before with {was.get('files')} files that are not the same"
