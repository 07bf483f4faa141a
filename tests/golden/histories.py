"""Entries of simulated histories, and what came of each: members of every build must reach the same state by them.

`histories-161e9a5.zst` was recorded by the build of commit 161e9a5. What stands in it never changes; a new form of an
entry, or new rules, are recorded beside it.

    python -m tests.golden.histories record FILE [--histories 16] [--first 0]    on the build that is right
    python -m tests.golden.histories compare FILE                                on another; 0 if all is the same

A file is a stream of histories, by msgpack and Zstandard: `[seed, [entry, ...], [mark, ...]]`. The mark of an entry is
the digest of the mark before it, of the snapshot after it, and of all that `apply_batch` returned.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgpack
import zstandard

from node.state.apply import Batch, apply_batch
from node.state.codec import from_pieces, pack_ended, snapshot_pieces
from node.state.shape import shape
from node.state.value import DeadlineEvent, Result, State

FILE = Path(__file__).with_name("histories-161e9a5.zst")


class Recorded(NamedTuple):
    """A history: the entries of its log, and the mark of each."""

    seed: int
    entries: list[bytes]
    marks: list[bytes]


def recorded(file: Path) -> Iterator[Recorded]:
    """The histories in a file."""
    with zstandard.open(file, "rb") as stream:
        yield from (Recorded(*one) for one in msgpack.Unpacker(stream))


def difference(history: Recorded) -> str | None:
    """Where this build comes to something else than the one that recorded a history; None: nowhere."""
    state, mark = State(), b""
    for place, (entry, expected) in enumerate(zip(history.entries, history.marks, strict=True)):
        state, mark = _applied(state, entry, mark)
        if mark != expected:
            return f"seed {history.seed}: entry {place} gives another state, or has other effects"
    if list(snapshot_pieces(from_pieces(snapshot_pieces(state)))) != list(snapshot_pieces(state)):
        return f"seed {history.seed}: the last state is another one after a snapshot"
    return None


def _applied(state: State, entry: bytes, mark: bytes) -> tuple[State, bytes]:
    batch = apply_batch(state, entry)
    snapshot = _digest(b"".join(snapshot_pieces(batch.state)))
    return batch.state, blake2b(mark + snapshot + _digest(_effects(batch)), digest_size=4).digest()


def _effects(batch: Batch) -> bytes:
    effects = [
        [[one.proposer, one.session, one.sequence, shape(Result).wire(result)] for one, result in batch.results],
        [[index, pack_ended(one)] for index, one in batch.ended],
        sorted(batch.touched),
        [[index, shape(DeadlineEvent).wire(one)] for index, one in batch.deadlines],
    ]
    return bytes(msgpack.packb(effects))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _record(file: Path, seeds: range) -> None:
    # Only what records needs the simulation.
    from tests.simulation.history import tell
    from tests.simulation.ledger import Ledger
    from tests.simulation.plan import plan

    def keep(ledger: Ledger) -> None:
        entries = [line.entry.data for line in ledger._lines if line.entry.kind == "proposals"]
        state, marks = State(), [b""]
        for entry in entries:
            state, mark = _applied(state, entry, marks[-1])
            marks.append(mark)
        told.append(msgpack.packb([seed, entries, marks[1:]]))

    told: list[bytes] = []
    with mock.patch.object(Ledger, "replay", keep):
        for seed in seeds:
            tell(plan(seed))
    file.write_bytes(zstandard.ZstdCompressor(19).compress(b"".join(told)))


def _compare(file: Path) -> bool:
    differences = [difference(history) for history in recorded(file)]
    found = [one for one in differences if one is not None]
    print("\n".join([*found, f"{len(differences)} histories, {len(found)} of them different"]))
    return not found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--histories", type=int, default=16)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # a seed is a history only where strings hash alike
        command = [sys.executable, "-m", "tests.golden.histories", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    if asked.what == "record":
        _record(asked.file, range(asked.first, asked.first + asked.histories))
        return 0
    return 0 if _compare(asked.file) else 1


if __name__ == "__main__":
    raise SystemExit(main())
