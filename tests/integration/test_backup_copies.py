"""Several destinations of one backup, real ones: what fails at one is named, costs no other, and is caught up."""

import html
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")

from fsspec.implementations.local import LocalFileSystem

from tasks.backup.kind import Backup
from tasks.backup.manifest import NAME, survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify
from testkit.cluster import Cluster
from testkit.command import Rota
from testkit.fake_context import FakeContext
from testkit.servers.object_store import BUCKET, KEY, SECRET, ObjectStore, object_store_process
from testkit.servers.store_proxy import store_proxy

pytestmark = [pytest.mark.integration, pytest.mark.more]

SIZE_MIB = 7


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


def _same_bytes(store: ObjectStore, urls: Sequence[str]) -> None:
    """All folders hold the same backups, byte for byte but for what manifests say of their own place."""

    def content(url: str) -> dict[str, str]:
        files = store.files if url.startswith("s3://") else LocalFileSystem()
        top = url.removeprefix("s3://")
        found = (path for path in files.find(top) if not path.endswith(NAME))
        return {path.partition("/nightly/")[2]: sha256(files.cat_file(path)).hexdigest() for path in found}

    assert len({frozenset(content(url).items()) for url in urls}) == 1, [(url, content(url)) for url in urls]


def test_each_destination_that_fails_is_named_and_caught_up_and_the_others_are_whole(
    tmp_path: Path, store: ObjectStore
) -> None:
    _random_file(tmp_path / "from" / "big", SIZE_MIB)
    with (
        store_proxy(store.endpoint) as slow,
        store_proxy(store.endpoint) as expiring,
        _small_disk(tmp_path / "full", 3 * SIZE_MIB) as is_small,
        Cluster(tmp_path / "cluster") as cluster,
    ):
        cluster.start()
        cluster.wait_until_whole(deadline_s=150)
        for name, value in (("key", KEY), ("secret", SECRET)):
            (cluster.secrets_dir / name).write_text(value)
        store.files.mkdir("destroyed")
        references: dict[str, Any] = {name: {"secret": name} for name in ("key", "secret")}
        to_store = references | {"endpoint_url": store.endpoint}
        copies: dict[str, dict[str, Any]] = {
            f"{tmp_path}/near": {},
            f"s3://{BUCKET}/good": {"options": to_store},
            f"s3://{BUCKET}/slow": {"options": references | {"endpoint_url": slow.endpoint}},
            f"s3://{BUCKET}/expired": {"options": references | {"endpoint_url": expiring.endpoint}},
            "s3://destroyed/rota": {"options": to_store},
            f"{tmp_path}/theirs": {"copy": "later"},
        }
        copies |= {f"{tmp_path}/full": {}} if is_small else {}
        params: dict[str, Any] = {"source": {"type": "folder", "path": str(tmp_path / "from"), "shared": True}}
        params |= {"destination": str(tmp_path / "to")}
        params |= {"copies": [{"destination": url} | given for url, given in copies.items()]}
        everywhere = [f"{url}/nightly" for url in (f"{tmp_path}/to", *copies)]
        cluster.register("nightly", "backup", params=params)
        plain = {"key": KEY, "secret": SECRET, "endpoint_url": store.endpoint}

        def run() -> Any:
            ended = cluster.wait_for_run(cluster.run("nightly"), *ENDS, deadline_s=400)
            assert ended["state"] == "succeeded", ended
            return ended

        def whole(url: str, backups: int) -> None:
            options = plain if url.startswith("s3") else None
            found = survey_url(url, options)
            assert (len(found.complete), found.without, found.unreadable) == (backups, (), ())
            assert all(verify(one.url, options).ok for one in found.complete)

        assert run()["result"]["owed"] == []
        slow.bytes_per_s = 1 << 20
        expiring.puts_left = 1  # the second part is refused: it expires midway
        store.files.rm("destroyed", recursive=True)
        (tmp_path / "theirs" / "nightly").rename(tmp_path / "ours")
        other = {"source": {"type": "folder", "path": str(tmp_path / "other")}, "destination": str(tmp_path / "theirs")}
        _random_file(tmp_path / "other" / "theirs", 1)
        Backup().run(FakeContext(BackupParams.model_validate(other), tmp_path, task="nightly"))
        if is_small:
            subprocess.run(["mount", "-o", f"remount,size={SIZE_MIB * 3 // 2}m", str(tmp_path / "full")], check=True)
        reasons = {
            f"s3://{BUCKET}/expired/nightly": "credentials",
            "s3://destroyed/rota/nightly": "no_bucket",
            f"{tmp_path}/theirs/nightly": "other_task",
        }
        reasons |= {f"{tmp_path}/full/nightly": "no_room"} if is_small else {}
        second = run()
        assert {one["destination"]: one["reason"] for one in second["result"]["owed"]} == reasons
        assert second["result"]["copies"] == [url for url in everywhere[1:] if url not in reasons]
        for url in everywhere:
            if url not in reasons:
                whole(url, 2)
        _same_bytes(store, [url for url in everywhere if url not in reasons])
        node = cluster.url("node-1")
        said = {
            "the API": cluster.get("/v1/tasks/nightly")["degraded"],
            "the command": Rota(node)("show", "nightly").out,
            "the page": html.unescape(urlopen(f"{node}/tasks/nightly/backups").read().decode()),
        }
        for where, text in said.items():
            for url in reasons:
                assert f"{url} lacks " in " ".join(text.replace("\n#", " ").split()), (where, text)
        assert "\nrota_degraded_tasks 1" in urlopen(f"{node}/metrics").read().decode()

        slow.bytes_per_s = expiring.puts_left = None
        store.files.mkdir("destroyed")
        shutil.rmtree(tmp_path / "theirs" / "nightly")
        (tmp_path / "ours").rename(tmp_path / "theirs" / "nightly")
        if is_small:
            subprocess.run(["mount", "-o", "remount,size=128m", str(tmp_path / "full")], check=True)
        third = run()["result"]
        assert (third["owed"], third["copies"]) == ([], everywhere[1:])
        (emptied,) = third["unusual"]
        assert emptied.startswith("s3://destroyed/rota/nightly held no backup")
        for url in everywhere:
            whole(url, 3)
        _same_bytes(store, everywhere)
        assert run()["result"]["degraded"] is None
        shutil.rmtree(tmp_path / "to")
        for number, url in enumerate(everywhere[1:]):
            restore_backup(url, str(tmp_path / f"{number}"), options=plain if url.startswith("s3") else None)
            assert (tmp_path / f"{number}" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()


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
