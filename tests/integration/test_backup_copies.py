"""Several destinations of one backup, real ones: what fails at one is named, costs no other, and is caught up."""

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")

from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify
from testkit.cluster import Cluster
from testkit.fake_context import FakeContext
from testkit.servers.object_store import BUCKET, KEY, SECRET, ObjectStore, object_store_process
from testkit.servers.store_proxy import store_proxy

pytestmark = [pytest.mark.integration, pytest.mark.more]

SIZE_MIB = 12


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with object_store_process(tmp_path / "store.log") as running:
        yield running


@contextmanager
def _small_disk(folder: Path, size_mib: int) -> Iterator[bool]:
    """A file system of this size at `folder`, if this user may mount one: False says that there is none."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _random_file(path: Path, size_mib: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(random.randbytes(size_mib << 20))


def test_each_destination_that_fails_is_named_and_caught_up_and_the_others_are_whole(
    tmp_path: Path, store: ObjectStore
) -> None:
    _random_file(tmp_path / "from" / "big", SIZE_MIB)
    _random_file(tmp_path / "other" / "theirs", 1)
    secrets = {"key": KEY, "secret": SECRET}
    references: dict[str, Any] = {name: {"secret": name} for name in secrets}

    def run(token: int, folder: str, **params: Any) -> dict[str, Any]:
        params = {"source": {"type": "folder", "path": str(tmp_path / folder)}} | params
        made = BackupParams.model_validate(params)
        context = FakeContext(made, tmp_path, task="nightly", run_id=f"nightly~{token}", token=token, secrets=secrets)
        return Backup().run(context)

    with (
        store_proxy(store.endpoint) as slow,
        store_proxy(store.endpoint) as expiring,
        _small_disk(tmp_path / "full", 5) as is_small,
    ):
        slow.bytes_per_s = 1 << 20
        expiring.puts_left = 1  # the second part, or the manifest, is refused: it expires midway
        s3 = {"endpoint_url": store.endpoint} | references
        parts = {"default_block_size": 5 << 20} | references
        copies = {
            "near": {"destination": str(tmp_path / "near")},
            "store": {"destination": f"s3://{BUCKET}/good", "options": s3},
            "slow": {"destination": f"s3://{BUCKET}/slow", "options": references | {"endpoint_url": slow.endpoint}},
            "expired": {
                "destination": f"s3://{BUCKET}/expired",
                "options": parts | {"endpoint_url": expiring.endpoint},
            },
            "destroyed": {"destination": "s3://destroyed/rota", "options": s3},
            "other": {"destination": str(tmp_path / "theirs"), "copy": "later"},
        }
        if is_small:
            copies["full"] = {"destination": str(tmp_path / "full"), "copy": "now"}
        run(1, "other", destination=str(tmp_path / "theirs"))
        given = {"destination": str(tmp_path / "to"), "copies": list(copies.values())}
        first = run(2, "from", **given)
        reasons = {one["destination"]: one["reason"] for one in first["owed"]}
        expected = {
            f"s3://{BUCKET}/expired/nightly": "credentials",
            "s3://destroyed/rota/nightly": "no_bucket",
            f"{tmp_path}/theirs/nightly": "other_task",
        }
        expected |= {f"{tmp_path}/full/nightly": "no_room"} if is_small else {}
        assert reasons == expected, first["owed"]
        assert first["copies"] == [
            f"{tmp_path}/near/nightly",
            f"s3://{BUCKET}/good/nightly",
            f"s3://{BUCKET}/slow/nightly",
        ]
        plain = {"key": KEY, "secret": SECRET, "endpoint_url": store.endpoint}
        for url in (f"{tmp_path}/to/nightly", *first["copies"]):
            report = verify(url, plain if url.startswith("s3") else None)
            assert (report.problems, report.manifest.token) == ((), 2)

        slow.bytes_per_s = expiring.puts_left = None
        store.files.mkdir("destroyed")
        shutil.move(tmp_path / "theirs" / "nightly", tmp_path / "moved")
        if is_small:
            subprocess.run(["mount", "-o", "remount,size=64m", str(tmp_path / "full")], check=True)
        second = run(3, "from", **given)
        assert (second["owed"], len(second["copies"])) == ([], len(copies))
        names = sorted(path.name for path in (tmp_path / "to" / "nightly").iterdir())
        for url in second["copies"]:
            options = plain if url.startswith("s3") else None
            found = survey_url(url, options)
            assert sorted(one.url.rpartition("/")[2] for one in found.complete) == names, "both, and nothing else"
            assert (found.without, found.unreadable) == ((), ())
            assert all(verify(one.url, options).ok for one in found.complete)
        restore_backup(f"{tmp_path}/theirs/nightly", str(tmp_path / "back"))
        assert (tmp_path / "back" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()


def test_whenever_the_owner_is_killed_one_backup_counts_at_each_destination(tmp_path: Path, store: ObjectStore) -> None:
    seed = random.randrange(1 << 32)
    print("drawn with seed", seed)
    drawn = random.Random(seed)
    _random_file(tmp_path / "from" / "big", 30)
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        cluster.wait_until_whole()
        for name, value in (("key", KEY), ("secret", SECRET)):
            (cluster.secrets_dir / name).write_text(value)
        options = {"key": {"secret": "key"}, "secret": {"secret": "secret"}, "endpoint_url": store.endpoint}
        copies = [
            {"destination": str(tmp_path / "near")},
            {"destination": f"s3://{BUCKET}/far", "options": options, "copy": "later"},
        ]
        params = {"source": {"type": "folder", "path": str(tmp_path / "from"), "shared": True}, "level": 9}
        params |= {"destination": str(tmp_path / "to"), "copies": copies}
        cluster.register("nightly", "backup", params=params, retry={"attempts": 5, "backoff_s": 0})
        plain = {"key": KEY, "secret": SECRET, "endpoint_url": store.endpoint}
        places: list[tuple[str, Any]] = [(f"{tmp_path}/to/nightly", None), (f"{tmp_path}/near/nightly", None)]
        places.append((f"s3://{BUCKET}/far/nightly", plain))
        rounds = 6
        for number in range(1, rounds + 1):
            run_id = cluster.run("nightly")
            began = cluster.wait_for_run(run_id, "running", *ENDS)
            time.sleep(drawn.uniform(0.0, 2.0))
            cluster.kill(began["node"])
            ended = cluster.wait_for_run(run_id, *ENDS, deadline_s=90)
            assert ended["state"] == "succeeded", ended
            assert ended["result"]["owed"] == []
            for url, how in places:
                found = survey_url(url, how)
                assert len(found.complete) == number, (url, found)
                assert {one.run_id for one in found.complete} >= {run_id}
                assert found.unreadable == ()
            cluster.restart(began["node"])
            cluster.wait_until_whole()
        cluster.wait_for_run(cluster.run("nightly"), "succeeded", deadline_s=90)
        for url, how in places:
            found = survey_url(url, how)
            assert (len(found.complete), found.without, found.superseded) == (rounds + 1, (), ()), url
            assert verify(url, how).ok
            shutil.rmtree(tmp_path / "back", ignore_errors=True)
            restore_backup(url, str(tmp_path / "back"), options=how)
            assert (tmp_path / "back" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()


ENDS = ("succeeded", "failed", "timed_out", "abandoned", "cancelled")
