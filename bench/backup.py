"""How fast backups are written, each beside the plain programs that do the same, in turn.

    python -m bench.backup [--mb 2000] [--files 100000] [--turns 3] [--only plain encrypted ...]

Half of the database is text of random hex, half is rows like pgbench's, which compress to almost nothing. An attempt of
the kind runs in a process of its own, from the check of the source to the removal of old backups; the size of that
process is its most memory. Rota syncs what it writes; the plain programs do not. A ratio is of the fastest turns: above
1, Rota is faster. Programs that are not installed (restic, pgbackrest) have no line.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.beginning import options_of
from examples.demo.postgres import Server, postgres_server
from tasks.backup.encryption import new_identity
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from testkit.fake_context import FakeContext
from testkit.servers.object_store import ObjectStore, object_store_process

PASSWORD: Final = "of-the-server"
ROW_BYTES: Final = 1000
LINES: Final = {
    "plain": "pg_dump -Fc -Z0 | zstd -3 -T2 > file",
    "content": "pg_dump -Fc -Z0 | zstd -3 -T2 > file",
    "encrypted": "pg_dump -Fc -Z0 | zstd -3 -T2 > file",
    "s3": "pg_dump -Fc -Z0 | zstd -3 -T2 > file",
    "s3_pipe": "pg_dump -Fc -Z0 | zstd -3 -T2 | age | s3fs, which tells how fast the store is",
    "physical": "pg_basebackup -Ft -X fetch | zstd -3 -T2 > file",
    "folder": "tar | zstd -3 -T2 > file",
    "restic": "restic backup of the folder, beside Rota's attempt at it",
}


_UPLOAD: Final = """
import sys, pyrage, s3fs
files = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=sys.argv[2])
with files.open("lake/plain", "wb", block_size=8 << 20) as out:
    pyrage.encrypt_io(sys.stdin.buffer, out, [pyrage.x25519.Recipient.from_str(sys.argv[1])])
"""
"""Encrypts standard input into an object, as `age` and a program that uploads would."""


@dataclass
class Site:
    """The server, folders and store of the measurements."""

    root: Path
    server: Server
    store: ObjectStore
    recipient: str
    environ: Mapping[str, str] = field(default_factory=dict)

    def shell(self, script: str) -> float:
        """Run a script of plain programs. Returns the seconds that it took."""
        began_s = time.monotonic()
        programs = f"{self.server.programs}:{os.environ['PATH']}"
        environ = {**os.environ, **self.environ, "PATH": programs, "PGPASSWORD": PASSWORD}
        subprocess.run(["bash", "-o", "pipefail", "-ec", script], env=environ, cwd=self.root, check=True)
        return time.monotonic() - began_s

    def attempt(self, params: dict[str, Any]) -> tuple[float, float]:
        """Run an attempt in a process of its own. Returns the seconds that it took, and its most memory in MB."""
        secrets = {"pg": PASSWORD, **self.store.secrets}
        given = json.dumps({"params": params, "secrets": secrets})
        environ = {**os.environ, "ROTA_POSTGRES_BIN": str(self.server.programs)}
        argv = [sys.executable, "-m", "bench.backup", "--attempt"]
        done = subprocess.run(argv, input=given, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        told = json.loads(done.stdout)
        return told["seconds"], told["memory_mb"]

    def params(self, name: str) -> dict[str, Any]:
        """The params of Rota's attempt of a line."""
        url = self.server.url("bench" if name != "physical" else "postgres")
        postgres = {"type": "postgres", "url": url, "password": {"secret": "pg"}}
        sources: dict[str, Any] = {
            "content": postgres | {"fingerprint": "content"},
            "physical": postgres | {"type": "postgres_physical"},
            "folder": {"type": "folder", "path": str(self.root / "files"), "shared": True},
        }
        sources["restic"] = sources["folder"]
        found: dict[str, Any] = {"source": sources.get(name, postgres), "destination": str(self.root / "backups")}
        if name in {"encrypted", "s3", "s3_pipe"}:
            found["encryption"] = {"recipients": [self.recipient]}
        if name in {"s3", "s3_pipe"}:
            found |= {"destination": self.store.url("backups"), "options": self.store.references}
        return found

    def plain(self, name: str) -> str:
        """The script of plain programs of a line."""
        if name == "physical":
            dump = f"pg_basebackup -Ft -X fetch -c fast -D - -d '{self.server.url('postgres')}'"
        elif name == "folder":
            dump = "tar -c files"
        elif name == "restic":
            return "rm -rf repo; restic -q init -r repo; restic -q backup -r repo files"
        else:
            dump = f"pg_dump -Fc -Z0 '{self.server.url('bench')}'"
        if name == "s3_pipe":
            upload = f"{sys.executable} -c '{_UPLOAD}' {self.recipient} {self.store.endpoint}"
            return f"{dump} | zstd -q -3 -T2 | {upload}"
        return f"{dump} | zstd -q -3 -T2 > plain.zst"

    def clear(self) -> None:
        """Remove what a turn has written."""
        shutil.rmtree(self.root / "backups", ignore_errors=True)
        for path in self.store.files.find("lake"):
            self.store.files.rm_file(path)


def fill_database(server: Server, size_mb: int) -> None:
    """Make the database `bench` with about `size_mb` of content."""
    rows = size_mb * 1_000_000 // 2 // ROW_BYTES
    server.sql("postgres", "CREATE DATABASE bench")
    hexes = " || ".join(["md5(random()::text)"] * (ROW_BYTES // 32))
    server.sql("bench", f"CREATE TABLE hex AS SELECT i, {hexes} AS t FROM generate_series(1, {rows}) i")
    server.sql(
        "bench",
        "CREATE TABLE accounts (aid int, bid int, abalance int, filler char(84)); "
        f"INSERT INTO accounts SELECT i, i / 100000, 0, '' FROM generate_series(1, {rows * ROW_BYTES // 97}) i",
    )


def fill_folder(folder: Path, files: int) -> None:
    """Make many small files of 0 to 4 KB, half of whose content does not compress."""
    for number in range(files):
        inside = folder / f"{number // 1000:03}"
        if number % 1000 == 0:
            inside.mkdir(parents=True)
        (inside / f"{number:06}.txt").write_bytes(os.urandom(number % 2048) + b"some text " * (number % 205))


@contextmanager
def _site(names: list[str], size_mb: int, files: int) -> Iterator[Site]:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-bench-")))
        server = stack.enter_context(postgres_server(PASSWORD))
        store = stack.enter_context(object_store_process(root / "store.log"))
        (root / "restic.txt").write_text(PASSWORD)
        environ = {"RESTIC_PASSWORD_FILE": str(root / "restic.txt"), "XDG_CACHE_HOME": str(root / "cache")}
        if set(names) - {"folder", "restic"}:
            fill_database(server, size_mb)
        if {"folder", "restic"} & set(names):
            fill_folder(root / "files", files)
        yield Site(root, server, store, new_identity(None)[0], environ)


def _attempt() -> None:
    """Run one attempt, as standard input describes it, and print what it took."""
    given = json.loads(sys.stdin.read())
    with tempfile.TemporaryDirectory() as scratch:
        params = BackupParams.model_validate(given["params"])
        ctx = FakeContext(params, Path(scratch), secrets=given["secrets"])
        began_s = time.monotonic()
        Backup().run(ctx)
        seconds = time.monotonic() - began_s
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "memory_mb": memory_mb}))


def _measure(site: Site, name: str, turns: int) -> None:
    ours: list[float] = []
    theirs: list[float] = []
    most_mb = 0.0
    for turn in range(turns):
        ways: list[Callable[[], None]] = [
            lambda: theirs.append(site.shell(site.plain(name))),
            lambda: ours.append(site.attempt(site.params(name))[0]),
        ]
        for way in ways if turn % 2 == 0 else reversed(ways):
            way()
        site.clear()
    most_mb = site.attempt(site.params(name))[1]
    site.clear()
    listed = " ".join(f"{mine:.2f}/{other:.2f}" for mine, other in zip(ours, theirs, strict=True))
    ratio = min(theirs) / min(ours)
    took = f"{ratio:5.2f}  {min(ours):7.2f} s  {min(theirs):7.2f} s  {most_mb:5.0f} MB"
    print(f"{name:10} {took}  {LINES[name]}  [{listed}]", flush=True)


def main() -> None:
    """Measure, and print a line for each."""
    parser = options_of(__doc__)
    parser.add_argument("--mb", type=int, default=2000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--attempt", action="store_true", help="(used by itself)")
    options = parser.parse_args()
    if options.attempt:
        _attempt()
        return
    names = [name for name in options.only if name != "restic" or shutil.which("restic")]
    with _site(names, options.mb, options.files) as site:
        print("line       ratio       Rota      plain   memory  plain programs  [Rota/plain of each turn, in seconds]")
        for name in names:
            _measure(site, name, options.turns)


if __name__ == "__main__":
    main()
