"""Chains of backups: which one the next continues, what each needs, and that no removal breaks a chain."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tasks.backup.chain import BrokenChain, chain_of, needed_by, next_backup, parents_of_next, with_parents
from tasks.backup.keep import KeepRules, why_kept
from tasks.backup.manifest import FileEntry, Manifest, NoBackup, ParentBackup, WalRange, folder_name
from tasks.backup.retention import surplus
from tasks.postgres.replication import ServerIdentity

T = datetime(2026, 11, 21, 3, tzinfo=UTC)
SERVER = ServerIdentity(system="77", timeline=1, version="17.5", major=17, summarizes=True)
DAY = timedelta(days=1)


def backup(day: int, chain: Sequence[Manifest] = (), **more: Any) -> Manifest:
    created = T + day * DAY
    entry: dict[str, Any] = {"size_bytes": 1, "stored_bytes": 1}
    given: dict[str, Any] = {
        "task": "base",
        "run_id": f"base~{day}",
        "attempt": 1,
        "token": day + 1,
        "created": created,
        "finished": created,
        "source_type": "postgres_physical",
        "source": {},
        "tools": {"postgresql": "17.5"},
        "files": (
            FileEntry(name="backup_manifest.zst", sha256=f"sum-{day}", **entry),
            FileEntry(name="base.tar.zst", sha256=f"base-{day}", **entry),
        ),
        "wal": WalRange(system="77", timeline=1, start=day, end=day + 1, included=True),
        "parents": parents_of_next(chain),
        "url": f"/to/base/{folder_name(created, day + 1)}",
    }
    return Manifest(**given | more)


def chain(length: int, start: int = 0) -> list[Manifest]:
    made: list[Manifest] = []
    for day in range(start, start + length):
        made.append(backup(day, made))
    return made


@pytest.mark.parametrize(
    ("length", "every", "incremental"),
    [
        *[(0, 7, False), (1, 7, True), (6, 7, True), (7, 7, False), (1, 1, False), (1, None, False)],
        *[(2, 3 * DAY, True), (3, 3 * DAY, False), (1, timedelta(hours=1), False)],
        *[(3, timedelta(days=3, seconds=5), False), (1, timedelta(days=1, hours=2), True)],
    ],
)
def test_a_full_backup_is_due_by_number_or_by_age(length: int, every: Any, incremental: bool) -> None:
    made = chain(length)
    found = next_backup(made, every, T + max(0, length - 1) * DAY + DAY, SERVER)
    assert found.remark is None
    assert found.parent == (made[-1] if incremental else None)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (SERVER._replace(version="15.14", major=15, summarizes=False), "PostgreSQL 15.14 makes none"),
        (SERVER._replace(summarizes=False), "`summarize_wal` is off"),
        (SERVER._replace(timeline=2), "from timeline 1 to 2"),
        (SERVER._replace(system="78"), "is of another system, 77"),
    ],
)
def test_what_does_not_allow_an_incremental_backup_is_told(server: ServerIdentity, why: str) -> None:
    found = next_backup(chain(2), 7, T + 2 * DAY, server)
    assert found.parent is None
    assert found.remark is not None
    assert why in found.remark


def test_a_backup_of_an_earlier_build_is_not_continued() -> None:
    old = backup(0, files=(FileEntry(name="base.tar.zst", size_bytes=1, stored_bytes=1, sha256=""),))
    found = next_backup([old], 7, T + DAY, SERVER)
    assert found.parent is None
    assert "has no manifest of the server" in str(found.remark)


def test_a_chain_is_read_from_the_full_backup_on() -> None:
    made = chain(4)
    by_name = {each.name: each for each in made}
    assert chain_of(made[3], by_name.get) == tuple(made)
    assert chain_of(made[0], by_name.get) == (made[0],)


def test_a_chain_that_lacks_a_backup_or_has_another_one_is_refused_by_name() -> None:
    made = chain(4)
    by_name = {each.name: each for each in made}
    lacking = {name: each for name, each in by_name.items() if each is not made[1]}
    with pytest.raises(BrokenChain, match=f"needs the backup {made[1].name}, which is not there"):
        chain_of(made[3], lacking.get)
    other = by_name | {made[0].name: backup(0, files=(made[0].files[1], made[1].files[0]))}
    with pytest.raises(BrokenChain, match=f"{made[0].name}, but the backup of that name is another one"):
        chain_of(made[3], other.get)
    # The parent was replaced by a full backup of the same name.
    with pytest.raises(BrokenChain, match=made[1].name):
        chain_of(made[3], (by_name | {made[1].name: made[1].model_copy(update={"parents": ()})}).get)
    outside = made[3].model_copy(update={"parents": (ParentBackup(name="../x", sha256=""),)})
    with pytest.raises(BrokenChain, match="which is no backup's name"):
        chain_of(outside, by_name.get)

    def damaged(name: str) -> Manifest | None:
        raise NoBackup("not a manifest of version 1")

    with pytest.raises(BrokenChain, match="whose manifest is damaged: not a manifest"):
        chain_of(made[3], damaged)


def test_what_others_need_stays_and_is_said() -> None:
    made = [*chain(3), *chain(2, start=3)]
    why = why_kept(made, KeepRules(last=3))
    assert [why[each.url] for each in made[:2]] == [[f"needed by {made[2].name}"]] * 2
    assert why[made[3].url] == ["last: 2 of 3", f"needed by {made[4].name}"]


def test_what_others_need_is_named() -> None:
    made = chain(3)
    names = [each.name for each in made]
    assert needed_by({names[2]}, made) == {names[0]: [names[2]], names[1]: [names[2]]}
    assert with_parents({names[1]}, made) == {names[0], names[1]}


@pytest.mark.parametrize("seed", range(100))
def test_no_removal_breaks_a_chain(seed: int) -> None:
    draw = random.Random(seed)
    made: list[Manifest] = []
    held: list[Manifest] = []
    for day in range(draw.randrange(1, 30)):
        made = [] if draw.random() < 0.25 else made
        made.append(backup(day, made))
        held.append(made[-1])
        last = draw.randrange(1, 5)
        rules = KeepRules(last=last, weekly=draw.choice([None, 2]))
        going = surplus(held, made[-1].url, rules, made[-1].token + 1)
        held = [each for each in held if each.name not in going]
        by_name = {each.name: each for each in held}
        for each in held:
            chain_of(each, by_name.get)
        if not any(each.parents for each in held):
            assert len(held) <= last + 2
