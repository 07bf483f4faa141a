"""Hundreds of random damages to a Raft folder: it opens complete, or reports the loss."""

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from node.raft.errors import DamagedData
from node.raft.log import snapshot
from node.raft.log.flush_counter import FlushCounter
from node.raft.log.log_store import JOURNAL, LOST, SNAPSHOT, VOTES, LogStore, Making
from node.raft.log.log_store import open_folder as open_log_store
from node.raft.log.snapshot import Header
from testkit.raft.wired import QuickJournal

pytestmark = pytest.mark.integration

MAKING = Making(QuickJournal)
"""Nothing here loses power: without a sync for each of the thousand openings it is over in a second or two."""

CLUSTER = ("n1 localhost 1", "n2 localhost 2", "n3 localhost 3")
LAST = 120
DAMAGES = 200


def open_folder(folder: Path, me: str, cluster: Sequence[str]) -> LogStore:
    return open_log_store(folder, me, cluster, making=MAKING)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `MAKING`, for the other files."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as kill -9 leaves it: a snapshot, a journal that has been cut, half of it in SQLite's own log."""
    made, left = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("left")
    opened = open_folder(made, "n1", CLUSTER)
    for index in range(1, LAST + 1):
        opened.journal.add(b"\x00" + b"%d." % index * 40, index, 1 + index // 50)
        if index % 10 == 0:
            opened.journal.setCurrentTerm(1 + index // 50, "n2")
        if index == LAST // 2:
            opened.journal.close()
            opened = open_folder(made, "n1", CLUSTER)
    last, prev = opened.journal[69], opened.journal[68]
    snapshot.write_snapshot(made / SNAPSHOT, Header(last, prev, CLUSTER), [b"the state, " * 300])
    opened.journal.deleteEntriesTo(30)
    opened.journal.set_note(VOTES, "yes")
    opened.journal.flush()
    for file in made.iterdir():
        shutil.copy(file, left)
    opened.journal.close()
    return left


def damage(file: Path, rng: random.Random) -> str:
    """Damage a file as disks do. Returns what was done."""
    content = bytearray(file.read_bytes())
    at = rng.randrange(len(content))
    match rng.choice(("flip", "flips", "zeros", "cut", "rubbish", "gone", "older block")):
        case "flip":
            content[at] ^= 1 << rng.randrange(8)
            said = f"a bit at {at}"
        case "flips":
            for _ in range(20):
                content[rng.randrange(len(content))] ^= 0xFF
            said = "twenty bytes"
        case "zeros":
            length = min(4096, len(content) - at)
            content[at : at + length] = bytes(length)
            said = f"a block of zeros at {at}"
        case "cut":
            del content[at:]
            said = f"cut off at {at}"
        case "rubbish":
            content = bytearray(rng.randbytes(len(content)))
            said = "all of it"
        case "older block":
            size = min(4096, len(content))
            start, other = (size * rng.randrange(len(content) // size) for _ in range(2))
            content[start : start + size] = content[other : other + size]
            said = f"the block at {other} in the place of that at {start}"
        case _:
            file.unlink()
            return f"{file.name} gone"
    file.write_bytes(content)
    return f"{file.name}: {said}"


def same(opened: LogStore, reference: LogStore) -> bool:
    """Whether every entry is there."""
    here, there = opened.journal, reference.journal
    entries = list(here[:]) == list(there[:]) and opened.header == reference.header
    vote = (here.getCurrentTerm(), here.getVotedForNodeId()) == (there.getCurrentTerm(), there.getVotedForNodeId())
    return entries and vote and here.note(VOTES) == "yes" and opened.cluster == reference.cluster


def test_a_damaged_folder_is_never_opened_as_intact(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(whole, tmp_path / "whole")
    reference = open_folder(tmp_path / "whole", "n1", CLUSTER)
    assert reference.journal.note(VOTES) == "yes"
    found, unharmed, by_file = 0, 0, dict.fromkeys((file.name for file in whole.iterdir()), 0)
    assert {JOURNAL, f"{JOURNAL}-wal", SNAPSHOT, "flushes"} <= by_file.keys()
    for seed in range(DAMAGES):
        rng = random.Random(seed)
        folder = tmp_path / "damaged"
        shutil.copytree(whole, folder)
        file = rng.choice(sorted(folder.iterdir()))
        said = f"seed {seed}: {damage(file, rng)}"
        caplog.clear()
        opened = open_folder(folder, "n1", CLUSTER)
        opened.journal.close()
        if opened.journal.note(LOST):
            found += 1
            by_file[file.name] += 1
            assert opened.journal.note(VOTES) == "", said
            assert [record.levelname for record in caplog.records] == ["ERROR"], said
            assert opened.journal.getVotedForNodeId() is None or file.name == SNAPSHOT, said
            kept = {each.name for each in folder.glob("*.damaged-1")}
            assert f"{JOURNAL}.damaged-1" in kept or said.endswith(f"{JOURNAL} gone"), (said, kept)
        else:
            unharmed += 1
            reference_or_snapshot = opened.header is None and opened.journal.first_index == 1
            assert same(opened, reference) or reference_or_snapshot, f"{said}: opened as intact with entries missing"
        again = open_folder(folder, "n1", CLUSTER)
        assert again.journal.note(LOST) == opened.journal.note(LOST), (
            f"{said}: the loss is not reported at the next start"
        )
        again.journal.close()
        shutil.rmtree(folder)
    reference.journal.close()
    assert found > DAMAGES / 3
    assert by_file[JOURNAL] > 10 < by_file[f"{JOURNAL}-wal"]
    assert by_file[SNAPSHOT] > 10
    assert by_file["flushes"] == 0, "this damage alone loses nothing"


def test_a_single_member_refuses_a_damaged_folder_and_does_not_change_it(whole: Path, tmp_path: Path) -> None:
    """There is no member to catch up from."""
    for name in (JOURNAL, f"{JOURNAL}-wal", SNAPSHOT):
        folder = tmp_path / name
        shutil.copytree(whole, folder)
        if name != SNAPSHOT:
            (folder / SNAPSHOT).unlink()
        (folder / name).write_bytes((folder / name).read_bytes()[:-5000])
        for _ in range(2):
            with pytest.raises(DamagedData, match=name.removesuffix("-wal")):
                open_folder(folder, "n1", CLUSTER[:1])
        assert not list(folder.glob("*.damaged-*"))


def test_a_torn_last_write_is_not_reported_as_damage(whole: Path, tmp_path: Path) -> None:
    """It was not acknowledged: acknowledgements, and the flush counter, come after it. Two torn writes are damage."""
    for lagging, lost in ((1, False), (0, True)):
        folder = tmp_path / str(lagging)
        shutil.copytree(whole, folder)
        counter = FlushCounter(folder / "flushes")
        assert counter.flushes is not None
        counter.write(counter.flushes - lagging)
        counter.close()
        log = folder / f"{JOURNAL}-wal"
        os.truncate(log, log.stat().st_size - 100)
        opened = open_folder(folder, "n1", CLUSTER)
        assert bool(opened.journal.note(LOST)) is lost
        opened.journal.close()
