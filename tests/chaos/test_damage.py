"""A member's folder is damaged: damaged files are quarantined and reported, and recovered from the other members."""

import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.raft.consensus import APART
from node.raft.ports import RaftTiming
from testkit.cluster import Cluster

pytestmark = [pytest.mark.chaos, pytest.mark.more]

FILL_BYTES = int((1 + APART) * RaftTiming().log_bytes)
"""More than the log of any member may hold: there is a snapshot then."""

Harm = Callable[[Path, random.Random], None]


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes with something in every file."""
    with Cluster(tmp_path) as made:
        made.start()
        made.wait_until_whole()
        notes = made.notes()
        notes.let_go()
        made.register("done", params=notes.params)
        made.wait_for_run(made.run("done"))
        for turn in range(FILL_BYTES // 900_000):
            made.register("large", params={"says": f"{turn:06}" * 150_000})
        snapshots = [made.folder / name / "raft/snapshot" for name in made.names]
        wait_for("each has made a snapshot", lambda: all(path.exists() for path in snapshots))
        # A read waits for all committed entries, so that no member lags when the others are damaged.
        wait_for("all are level", lambda: all(made.get("/v1/tasks/large", name) for name in made.names))
        yield made


def flip(path: Path, rng: random.Random) -> None:
    """Flip bytes at random positions."""
    content = bytearray(path.read_bytes())
    for _ in range(max(3, len(content) // 2000)):
        content[rng.randrange(len(content))] ^= 0xFF
    path.write_bytes(content)


def empty(path: Path, _rng: random.Random) -> None:
    """Truncate the file to nothing: SQLite reuses its WAL from the start, so the end may be obsolete."""
    os.truncate(path, 0)


def overwrite(path: Path, rng: random.Random) -> None:
    """Delete the content, and that of SQLite's WAL."""
    path.write_bytes(rng.randbytes(path.stat().st_size))
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)


def harm(cluster: Cluster, name: str, file: str, how: Harm) -> None:
    """Kill a node, and damage one of its files."""
    cluster.kill(name)
    how(cluster.folder / name / file, random.Random(f"{name} {file}"))


HARMS: list[tuple[str, Harm]] = [
    ("raft/raft.sqlite", flip),
    ("raft/raft.sqlite-wal", empty),
    ("raft/snapshot", flip),
    ("history.db", overwrite),
]


def test_a_member_with_a_damaged_file_recovers_everything_from_the_others(whole: Cluster) -> None:
    tasks = {task["name"]: task["version"] for task in whole.all("/v1/tasks")}
    runs = whole.all("/v1/runs")
    for number, (file, how) in enumerate(HARMS):
        name = whole.names[number % 3]
        said = len(whole.said(name))
        harm(whole, name, file, how)
        whole.register(f"meanwhile-{number}", node=whole.others(name)[0])
        tasks[f"meanwhile-{number}"] = 1
        whole.restart(name)
        errors = [line for line in whole.said(name)[said:].splitlines() if " ERROR " in line]
        assert len(errors) == 1, (file, errors)
        [told] = errors
        assert Path(file).name.removesuffix("-wal") in told
        kept = whole.folder / name / f"{file.removesuffix('-wal')}.damaged-1"
        assert kept.exists(), f"{file} was not kept"
        assert kept.name in told
        assert {task["name"]: task["version"] for task in whole.all("/v1/tasks", name)} == tasks
        wait_for(f"{name} tells of all runs", lambda name=name: whole.all("/v1/runs", name) == runs)  # type: ignore[misc]
    voted = [name for name in whole.names if "has caught up with the others, and votes again" in whole.said(name)]
    assert voted == whole.names, "every member has lost its log once"
    whole.kill(whole.wait_for_leader())
    whole.register("by-the-votes-of-those-who-had-lost-theirs", node=whole.running()[0])
    whole.check()


def test_a_damaged_majority_refuses_to_start_and_says_what_to_do(whole: Cluster) -> None:
    one, other, well = whole.names
    for name in (one, other):
        # Truncating is not enough: SQLite's WAL would restore the content.
        harm(whole, name, "raft/raft.sqlite", overwrite)
    whole.start(one, other)
    for name in (one, other):
        wait_for(f"{name} has ended", lambda name=name: whole.exit_code(name) is not None)  # type: ignore[misc]
        told = [line for line in whole.said(name).splitlines() if " CRITICAL " in line]
        expected = (
            rf"{one}, {other} have lost their logs, and the other members are too few .*recover\.md.*raft\.sqlite"
        )
        assert re.search(expected, told[0])
        assert whole.exit_code(name) == 1
    assert "large" in {task["name"] for task in whole.all("/v1/tasks", well)}, "the answer lists what is known"
    assert whole.ask("PUT", "/v1/tasks/new", well, json={"kind": "probe"}).status in (503, 504)
