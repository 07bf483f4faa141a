"""A backup to an object store and back, on moto's S3 API on loopback."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")

from tasks.backup.kind import Backup  # noqa: E402
from tasks.backup.manifest import survey_url  # noqa: E402
from tasks.backup.params import BackupParams  # noqa: E402
from tasks.backup.restore import restore_backup  # noqa: E402
from tasks.backup.sources.source import NoBackupSource  # noqa: E402  after the check that it is there
from tasks.backup.verify import verify  # noqa: E402
from tasks.places.place import NoBucket, Place, resolved  # noqa: E402
from testkit.fake_context import FakeContext  # noqa: E402

pytestmark = pytest.mark.integration


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_a_backup_goes_to_s3_in_parts_and_comes_back(tmp_path: Path, endpoint: str) -> None:
    import s3fs

    options: dict[str, Any] = {"key": {"secret": "key"}, "secret": {"secret": "secret"}, "endpoint_url": endpoint}
    secrets = {"key": "somebody", "secret": "whisper"}
    s3fs.S3FileSystem(key="somebody", secret="whisper", endpoint_url=endpoint).mkdir("backups")
    (tmp_path / "from").mkdir()
    # More than a part of an upload (50 MiB in s3fs), and random, so that it stays so when it is compressed.
    with (tmp_path / "from" / "big").open("wb") as file, Path("/dev/urandom").open("rb") as random:
        for _ in range(60):
            file.write(random.read(1 << 20))
    params = BackupParams.model_validate(
        {
            "source": {"type": "folder", "path": str(tmp_path / "from")},
            "destination": "s3://backups/rota",
            "options": options,
            "keep": 1,
        }
    )
    made = []
    for token in (1, 2):
        context = FakeContext(params, tmp_path, task="nightly", token=token, secrets=secrets)
        made.append(Backup().run(context)["url"])
    plain = resolved(params.options, context.secret)
    assert plain == {"key": "somebody", "secret": "whisper", "endpoint_url": endpoint}
    assert [found.url for found in survey_url("s3://backups/rota/nightly", plain).complete] == [made[1]]
    written = Place(made[1], plain).last_written()
    assert written is not None and abs(written - datetime.now(UTC)) < timedelta(hours=1)
    assert context.saved[-1]["finished"] == made[1], "its size was found right: what is old was removed after it"
    report = verify("s3://backups/rota/nightly", plain)
    assert (report.problems, report.manifest.token) == ((), 2)
    restore_backup("s3://backups/rota/nightly", str(tmp_path / "back"), options=plain)
    assert (tmp_path / "back" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()


def test_a_bucket_or_a_folder_that_is_not_there_is_named_and_not_tried_again(tmp_path: Path, endpoint: str) -> None:
    options = {"key": {"secret": "key"}, "secret": {"secret": "secret"}, "endpoint_url": endpoint}
    secrets = {"key": "somebody", "secret": "whisper"}
    (tmp_path / "from").mkdir()

    def run(folder: str) -> None:
        params = BackupParams.model_validate(
            {
                "source": {"type": "folder", "path": str(tmp_path / folder)},
                "destination": "s3://no-such-bucket/rota",
                "options": options,
            }
        )
        Backup().run(FakeContext(params, tmp_path, task="nightly", secrets=secrets))

    with pytest.raises(NoBucket, match="the bucket 'no-such-bucket' does not exist"):
        run("from")
    with pytest.raises(NoBackupSource, match="nowhere does not exist on node-1"):
        run("nowhere")


def test_uploads_that_a_dead_attempt_did_not_complete_are_aborted(tmp_path: Path, endpoint: str) -> None:
    import s3fs

    plain = {"key": "somebody", "secret": "whisper", "endpoint_url": endpoint}
    files = s3fs.S3FileSystem(**plain)
    files.mkdir("parts")
    (tmp_path / "from").mkdir()
    dead, old, other = "20261127T030000.000000Z-1", "20260101T000000.000000Z-2", "20261127T030000.000000Z-9"
    for name in (dead, old, other):
        files.call_s3("create_multipart_upload", Bucket="parts", Key=f"rota/nightly/{name}/folder.tar.zst")
    params = BackupParams.model_validate(
        {
            "source": {"type": "folder", "path": str(tmp_path / "from")},
            "destination": "s3://parts/rota",
            "options": plain,
        }
    )
    context = FakeContext(params, tmp_path, task="nightly", attempt=2, token=3, checkpoint={"begun": [dead]})
    assert Backup().run(context)["not_removed"] == []
    left = files.call_s3("list_multipart_uploads", Bucket="parts").get("Uploads", [])
    assert [one["Key"].split("/")[2] for one in left] == [other], "a later attempt may be at work"
