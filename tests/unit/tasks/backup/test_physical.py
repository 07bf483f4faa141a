"""The manifest of pg_basebackup is found in its stream, wherever the stream is cut."""

import io
import json
import random
import tarfile

import pytest

from tasks.backup.archive import Writer, quiet
from tasks.backup.manifest import WalRange
from tasks.backup.sources.physical import SERVER_MANIFEST, ServerManifest
from tasks.backup.sources.postgres_tools import PostgresFailed

TOLD = {
    "PostgreSQL-Backup-Manifest-Version": 2,
    "Files": [{"Path": f"base/1/{number}", "Size": number} for number in range(200)],
    "WAL-Ranges": [
        {"Timeline": 2, "Start-LSN": "0/2000028", "End-LSN": "0/3000000"},
        {"Timeline": 3, "Start-LSN": "0/3000000", "End-LSN": "1/2000120"},
    ],
}


def stream(*members: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return made.getvalue()


def found(content: bytes, cuts: list[int]) -> tuple[WalRange, int]:
    out = Writer("base.tar.zst", io.BytesIO(), 1, quiet)
    manifest = ServerManifest(out)
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        manifest.write(content[start:end])
    return manifest.wal_range("77", included=True), out.size_bytes


@pytest.mark.parametrize("seed", range(40))
def test_the_manifest_is_found_however_the_stream_is_cut(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([0, 1, 511, 512, 513, 8192, draw.randrange(100_000)]) for _ in range(draw.randrange(1, 8))]
    files = [(f"base/1/{number}", draw.randbytes(size)) for number, size in enumerate(sizes)]
    told = (SERVER_MANIFEST, json.dumps(TOLD).encode())
    content = stream(*files, told, *(files if draw.random() < 0.2 else []))
    cuts = sorted(draw.randrange(len(content) + 1) for _ in range(draw.randrange(60)))
    expected = WalRange(system="77", timeline=3, start=0x2000028, end=(1 << 32) + 0x2000120, included=True)
    assert found(content, cuts) == (expected, len(content))


@pytest.mark.parametrize("told", [None, b"", b"{}", b'{"WAL-Ranges": []}', b"not JSON"])
def test_a_stream_that_does_not_say_which_log_it_needs_is_refused(told: bytes | None) -> None:
    members = [("PG_VERSION", b"17\n")] + ([] if told is None else [(SERVER_MANIFEST, told)])
    with pytest.raises(PostgresFailed, match="does not say which part of the log"):
        found(stream(*members), [])


def test_a_stream_that_is_no_archive_is_refused() -> None:
    with pytest.raises(PostgresFailed, match="no tar archive"):
        found(b"x" * 1024, [])
