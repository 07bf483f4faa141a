"""Backups in a bucket with Object Lock: a stolen member deletes and spoils none, and another task removes old ones."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify
from tasks.places.object_lock import LockTime, VersionedBucket
from tasks.prune.kind import BackupPrune, PruneParams
from testkit.fake_context import FakeContext
from testkit.servers.object_store import KEY, SECRET, ObjectStore
from testkit.servers.store_proxy import store_proxy

pytestmark = pytest.mark.integration

NOW = datetime.now(UTC).replace(microsecond=0)
SECRETS = {"key": KEY, "secret": SECRET}
PLAIN: dict[str, Any] = {"key": KEY, "secret": SECRET}


def _options(endpoint: str) -> dict[str, Any]:
    return {name: {"secret": name} for name in SECRETS} | {"endpoint_url": endpoint}


def _backup(tmp_path: Path, token: int, now: datetime, **params: Any) -> dict[str, Any]:
    source = {"type": "folder", "path": str(tmp_path / "from")}
    made = BackupParams.model_validate({"source": source} | params)
    context = FakeContext(made, tmp_path, task="nightly", run_id=f"nightly~{token}", token=token, secrets=SECRETS)
    return Backup(now=lambda: now).run(context)


def _prune(tmp_path: Path, token: int, endpoint: str, destination: str) -> dict[str, Any]:
    params = {"backups": "nightly", "destination": destination, "options": _options(endpoint), "keep": 1}
    made = PruneParams.model_validate(params)
    return BackupPrune().run(FakeContext(made, tmp_path, task="prune", token=token, secrets=SECRETS))


@pytest.fixture
def from_folder(tmp_path: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / "a").write_text(text)

    return write


@pytest.mark.more
@pytest.mark.parametrize("where", ["first", "copy", "later"])
def test_who_may_not_delete_backs_up_and_can_spoil_nothing(
    tmp_path: Path, from_folder: Callable[[str], None], any_store: ObjectStore, where: str
) -> None:
    from_folder("good")
    (tmp_path / "from" / "in-parts").write_bytes(random.randbytes(11 << 20))
    store, vault = any_store, any_store.new_bucket(locks=True)
    with store_proxy(store.endpoint) as members:
        members.may_delete = False
        locked = {"destination": f"s3://{vault}/rota", "options": _options(members.endpoint), "keep": 1}
        locked |= {"lock_days": 10, "prune": "elsewhere"}
        params = locked
        if where != "first":
            locked |= {"copy": "later" if where == "later" else "now"}
            params = {"destination": str(tmp_path / "to"), "copies": [locked]}
        for token in (1, 2):
            result = _backup(tmp_path, token, NOW, **params)
            assert (result["owed"], result["not_removed"]) == ([], [])
        plain = PLAIN | {"endpoint_url": store.endpoint}
        found = survey_url(f"s3://{vault}/rota/nightly", plain).complete
        assert len(found) == 2, "what keep does not retain stays: another task removes it"
        assert all(file.version for backup in found for file in backup.files)

        # A stolen member: it writes over everything, and deletes what it can.
        files = store.files
        good = VersionedBucket(files, f"{vault}/rota").versions()
        for path in files.find(f"{vault}/rota"):
            files.pipe_file(path, b"spoilt")
        for one in good:
            with pytest.raises(PermissionError):
                VersionedBucket(files, f"{vault}/rota").remove(one)
        # The run after that renews locks, and a renewed version is not the newest for that.
        locked["keep"] = 3
        _backup(tmp_path, 3, NOW + timedelta(days=6), **params)
        again = survey_url(f"s3://{vault}/rota/nightly", plain)
        assert (again.complete[1:], again.unreadable) == (found, ())
        for backup in found:
            assert verify(backup.url, plain).ok
        restore_backup(found[0].url, str(tmp_path / "back"), options=plain)
        assert (tmp_path / "back" / "a").read_text() == "good"


def test_locks_of_what_stays_are_renewed_and_what_is_to_go_is_listed_until_its_lock_ends(
    tmp_path: Path, from_folder: Callable[[str], None], any_store: ObjectStore
) -> None:
    from_folder("good")
    store, destination = any_store, f"s3://{any_store.new_bucket(locks=True)}/rota"
    params = {"destination": destination, "options": _options(store.endpoint), "lock_days": 10}
    params |= {"prune": "elsewhere", "keep": 2}
    # Like one whose lock has expired: no store locks until a time that is over.
    expired = _backup(tmp_path, 1, NOW - timedelta(days=20), **params | {"lock_days": None})["url"]
    first = _backup(tmp_path, 2, NOW, **params | {"keep": 1})["url"]
    second = _backup(tmp_path, 3, NOW + timedelta(days=6), **params)["url"]

    def until(url: str) -> set[datetime | None]:
        bucket = VersionedBucket(store.files, url.removeprefix("s3://"))
        return {bucket.locked_until(one) for one in bucket.versions()}

    assert [until(url) for url in (first, second)] == [{NOW + timedelta(days=16)}] * 2
    assert until(expired) == {None}, "keep does not retain it"
    pruned = _prune(tmp_path, 4, store.endpoint, destination)
    assert (pruned["removed"], pruned["not_removed"]) == (1, [])
    assert pruned["locked"] == [f"{first} is locked until {NOW + timedelta(days=16):%Y-%m-%d %H:%M} UTC"]
    left = {
        one.path.split("/")[3] for one in VersionedBucket(store.files, destination.removeprefix("s3://")).versions()
    }
    assert left == {url.rpartition("/")[2] for url in (first, second)}


def test_half_of_the_time_of_a_lock_may_pass_before_it_is_renewed() -> None:
    lock = LockTime.of(10, NOW)
    assert lock == (NOW + timedelta(days=10), NOW + timedelta(days=5))
    assert LockTime.of(None, NOW) is None
