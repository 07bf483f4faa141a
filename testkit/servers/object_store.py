"""An S3 API on loopback: moto's server, in memory, in this process or in one of its own; or another that runs."""

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

BUCKET: Final = "lake"
KEY: Final = "somebody"
SECRET: Final = "whisper-to-the-store"


@dataclass
class ObjectStore:
    """A running store with the bucket `BUCKET`. It takes any credentials."""

    endpoint: str
    server: Any

    @property
    def options(self) -> dict[str, Any]:
        """fsspec's options for it."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": self.endpoint}

    @property
    def references(self) -> dict[str, Any]:
        """The options as a task gives them, and `secrets` has the values."""
        return self.options | {name: {"secret": name} for name in self.secrets}

    @property
    def secrets(self) -> dict[str, str]:
        return {"key": KEY, "secret": SECRET}

    @property
    def files(self) -> Any:
        """fsspec's file system, with nothing remembered of earlier listings."""
        import s3fs

        files = s3fs.S3FileSystem(**self.options)
        files.invalidate_cache()
        return files

    def new_bucket(self, *, locks: bool = False) -> str:
        """Make a bucket, and return its name. `locks`: with Object Lock, so it may be impossible to remove it."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.files.call_s3("create_bucket", Bucket=name, ObjectLockEnabledForBucket=locks)
        return name

    def url(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def names(self, name: str) -> list[str]:
        """The paths of all objects below `name`, relative to it."""
        folder = f"{BUCKET}/{name}/"
        return sorted(path.removeprefix(folder) for path in self.files.find(folder))

    def stop(self) -> None:
        """From now on nothing answers. Not for a store in a process of its own."""
        self.server.stop()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = ObjectStore(f"http://{host}:{port}", server)
        # What a store holds belongs to this process: it outlives the server.
        urllib.request.urlopen(urllib.request.Request(f"{store.endpoint}/moto-api/reset", method="POST")).close()
        store.files.mkdir(BUCKET)
        yield store
    finally:
        server.stop()


@contextmanager
def object_store_process(log: Path, host: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """A store in a process of its own: it answers also while a library keeps this process from running Python.

    The new file `log` has what it prints.
    """
    with _served([sys.executable, "-m", "moto.server", "-H", host, "-p", "0"], log, host) as store:
        store.files.mkdir(BUCKET)
        yield store


@contextmanager
def rclone_store(rclone: str, folder: Path, log: Path) -> Iterator[ObjectStore]:
    """An S3 server that keeps its objects as files in `folder`, and leaves more of the processors to others than moto.

    `rclone` is the program; it knows too little of S3 for tests (no conditional writes, no versions). It would also
    hash each file by all that it knows (1 s of processor time for 512 MB), which a store elsewhere does there.
    """
    (folder / BUCKET).mkdir(parents=True)
    command = [rclone, "--config", "", "serve", "s3", str(folder), "--addr", "127.0.0.1:0", "--ignore-checksum"]
    with _served([*command, "--auth-key", f"{KEY},{SECRET}"], log, "127.0.0.1") as store:
        yield store


@contextmanager
def _served(command: list[str], log: Path, host: str) -> Iterator[ObjectStore]:
    with log.open("xb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        end_s = time.monotonic() + 60
        while (found := re.search(rf"http://{re.escape(host)}:\d+", log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < end_s, log.read_text()
            time.sleep(0.05)
        yield ObjectStore(found[0], process)
    finally:
        process.kill()
        process.wait()


OTHER: Final = "ROTA_TEST_S3"
"""The variable with the endpoint of a server that tests of S3 use too. It knows `KEY` and `SECRET`."""
