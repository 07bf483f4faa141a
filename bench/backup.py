"""How fast backups are written and restored, each beside other programs that do the same, in turn.

    python -m bench.backup [--mb 2000] [--files 100000] [--turns 3] [--only plain encrypted ...]

Half of a database is text of random hex, half is rows like pgbench's, which compress to almost nothing. Both sides
compress at level 3 of zstd, by two threads or processes, read from a warm page cache, and end when what they wrote is
on the disk: after plain programs and restic's restore comes `sync`; the others sync their files themselves.

An attempt of Rota runs in a process of its own, from the check of the source to the removal of old backups. Python has
been started and the kind imported before, as on a node. A ratio is the median of the turns' ratios: above 1, Rota is
faster; seconds are medians too. The second ratio is of the processor time of all processes of one side, which decides
where the servers and the object store are on other machines: here they take their time from the same processors. A run
of its own afterwards measures the memory: the most that all processes of one side hold at once, where each shared page
is divided among those that share it (PSS). Servers and the object store are counted in neither.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.beginning import options_of
from bench.pgbackrest import KeptServer, kept_server, why_no_pgbackrest
from examples.demo.postgres import Server, postgres_server
from node.execution import process_tree
from tasks.backup.encryption import BackupKeys, Identities, new_identity
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from testkit.fake_context import FakeContext
from testkit.servers.object_store import KEY, SECRET, ObjectStore, object_store_process, rclone_store

PASSWORD: Final = "of-the-server"
ROW_BYTES: Final = 1000
_PIPE: Final = "pg_dump -Fc -Z0 | zstd -3 -T2 > file"
LINES: Final = {
    "plain": _PIPE,
    "content": f"{_PIPE}; Rota hashes each table, too",
    "encrypted": f"{_PIPE}; Rota encrypts, too",
    "s3": f"{_PIPE}; Rota encrypts, too, and writes to an S3 API",
    "s3_pipe": "pg_dump -Fc -Z0 | zstd -3 -T2 | age | s3fs: how fast the store is",
    "physical": "pg_basebackup -Ft -X fetch | zstd -3 -T2 > file",
    "folder": "tar | zstd -3 -T2 > file",
    "folder_whole": "tar --format=posix --xattrs --acls | zstd -3 -T2 > file: it keeps what Rota keeps",
    "pgbackrest": "pgbackrest backup --type=full; a server of PostgreSQL 15",
    "pgbackrest_back": "pgbackrest restore",
    "restic": "restic backup of the folder; both encrypt",
    "restic_back": "restic restore of the folder",
    "restic_dump": "restic backup of the file that pg_dump -Fc -Z0 makes; both encrypt",
}

_THREADS: Final = "2"
_LOOK_S: Final = 0.02

_UPLOAD: Final = f"""
import sys, pyrage, s3fs
files = s3fs.S3FileSystem(key="{KEY}", secret="{SECRET}", endpoint_url=sys.argv[2])
with files.open("lake/plain", "wb", block_size=8 << 20) as out:
    pyrage.encrypt_io(sys.stdin.buffer, out, [pyrage.x25519.Recipient.from_str(sys.argv[1])])
"""
"""Encrypts standard input into an object, as `age` and a program that uploads would."""


def why_not(name: str) -> str:
    """Say what this machine lacks for a line; "": nothing."""
    if name.startswith("pgbackrest"):
        return why_no_pgbackrest()
    if name.startswith("restic") and shutil.which("restic") is None:
        return "restic is not installed (apt-get install restic)"
    return ""


@dataclass(frozen=True)
class Took:
    """What one turn of one side took."""

    #: The time in seconds.
    seconds: float
    #: The most memory that its processes held at once, in MB.
    memory_mb: float = 0.0
    #: The size of the backup as it is stored, in MB.
    stored_mb: float = 0.0
    #: The processor time of its processes, in seconds.
    processor_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """The same work for both sides."""

    #: The params of Rota's backup; None: Rota restores.
    params: dict[str, Any] | None = None
    #: Of a restore, the URL of the backup and the path of the target.
    restore: tuple[str, str] | None = None
    #: What the other programs do, as a script of bash.
    script: str
    #: What is done before each turn of theirs, and not measured.
    before: str = "true"
    #: What the script writes: a file or folder, of which the size is told; None: an object of the store, or a restore.
    writes: Path | None = None


class Site:
    """The servers, folders and store of the measurements. Each is made when a line first needs it."""

    def __init__(self, root: Path, stack: ExitStack, size_mb: int, files: int) -> None:
        self.root = root
        self._stack = stack
        self._size_mb = size_mb
        self._files = files
        self._recipient, self._identity = new_identity(None)

    @cached_property
    def server(self) -> Server:
        """A server with the database `bench`."""
        server = self._stack.enter_context(postgres_server(PASSWORD))
        fill_database(server, self._size_mb)
        return server

    @cached_property
    def kept(self) -> KeptServer:
        """A server of PostgreSQL 15 with the database `bench`, which pgBackRest keeps."""
        kept = self._stack.enter_context(kept_server(PASSWORD))
        self.run(kept.command("stanza-create"))
        fill_database(kept.server, self._size_mb)
        return kept

    @cached_property
    def store(self) -> ObjectStore:
        """An object store: rclone, if it is installed."""
        rclone = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
        log = self.root / "store.log"
        found = object_store_process(log) if rclone is None else rclone_store(rclone, self.root / "store", log)
        return self._stack.enter_context(found)

    @cached_property
    def files(self) -> Path:
        """A folder of many small files."""
        fill_folder(self.root / "files", self._files)
        return self.root / "files"

    @cached_property
    def dumped(self) -> Path:
        """A folder with the file that pg_dump makes of the database."""
        (self.root / "dumped").mkdir()
        self.run(f"{self._dump()} > dumped/bench.dump")
        return self.root / "dumped"

    def _dump(self) -> str:
        return f"{self.server.programs}/pg_dump -Fc -Z0 '{self.server.url('bench')}'"

    def line(self, name: str) -> Line:
        """Make what a line needs, and return the line."""
        if name.startswith("restic"):
            return self._beside_restic(name)
        if name.startswith("pgbackrest"):
            return self._beside_pgbackrest(name)
        file = self.root / "plain.zst"
        into_file = f"| zstd -q -3 -T{_THREADS} > {file}; sync {file}"
        if name.startswith("folder"):
            source = {"type": "folder", "path": str(self.files), "shared": True}
            options = "--format=posix --xattrs --acls" if name == "folder_whole" else ""
            return Line(params=self._params(source), script=f"tar {options} -c files {into_file}", writes=file)
        if name == "physical":
            url = self.server.url("postgres")
            base = f"{self.server.programs}/pg_basebackup -Ft -X fetch -c fast -D - -d '{url}'"
            return Line(params=self._params(_physical(url)), script=f"{base} {into_file}", writes=file)
        source = {"type": "postgres", "url": self.server.url("bench"), "password": {"secret": "pg"}}
        if name == "content":
            source["fingerprint"] = "content"
        params = self._params(source, encrypted=name not in {"plain", "content"})
        if name not in {"s3", "s3_pipe"}:
            return Line(params=params, script=f"{self._dump()} {into_file}", writes=file)
        params |= {"destination": self.store.url("backups"), "options": self.store.references}
        upload = f"{sys.executable} -c '{_UPLOAD}' {self._recipient} {self.store.endpoint}"
        if name == "s3_pipe":
            return Line(params=params, script=f"{self._dump()} | zstd -q -3 -T{_THREADS} | {upload}")
        return Line(params=params, script=f"{self._dump()} {into_file}", writes=file)

    def _beside_restic(self, name: str) -> Line:
        repo, back = self.root / "repo", self.root / "back"
        folder = self.dumped if name == "restic_dump" else self.files
        new = f"rm -rf {repo}; restic -q init -r {repo}"
        backup = f"restic -q backup -r {repo} {folder.name}"
        params = self._params({"type": "folder", "path": str(folder), "shared": True}, encrypted=True)
        if name != "restic_back":
            return Line(params=params, script=backup, before=new, writes=repo)
        self.run(f"{new}; {backup}")
        return Line(
            restore=self._made(name, params, back),
            script=f"restic -q restore latest -r {repo} --target {back}; sync -f {back}",
            before=f"rm -rf {back}",
        )

    def _beside_pgbackrest(self, name: str) -> Line:
        kept = self.kept
        params = self._params(_physical(kept.server.url("postgres")))
        backup = kept.command("backup --type=full")
        if name == "pgbackrest":
            backups = kept.repo / "backup/bench"
            return Line(params=params, script=backup, before=kept.command("expire"), writes=backups)
        self.run(backup)
        return Line(
            restore=self._made(name, params, kept.restored),
            script=kept.command(f"restore --pg1-path={kept.restored}"),
            before=kept.empty_target(),
        )

    def _made(self, name: str, params: dict[str, Any], target: Path) -> tuple[str, str]:
        """Make the backup of a line that is to be restored to `target`."""
        params |= {"destination": str(self.root / f"made-{name}")}
        self.attempt(Line(params=params, script=""))
        return f"{params['destination']}/task", str(target)

    def _params(self, source: dict[str, Any], *, encrypted: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {"source": source, "destination": str(self.root / "backups")}
        return found | ({"encryption": {"recipients": [self._recipient]}} if encrypted else {})

    def run(self, script: str, *, memory: bool = False) -> Took:
        """Run a script of other programs."""
        environ = {"PGPASSWORD": PASSWORD, "RESTIC_PASSWORD": PASSWORD, "XDG_CACHE_HOME": str(self.root / "cache")}
        began_s, used_s = time.monotonic(), _processor_s()
        with subprocess.Popen(
            ["bash", "-o", "pipefail", "-ec", script], env={**os.environ, **environ}, cwd=self.root
        ) as process:
            memory_mb = _most_memory_mb(process) if memory else 0.0
        took = Took(time.monotonic() - began_s, memory_mb, processor_s=_processor_s() - used_s)
        if process.returncode:
            raise SystemExit(f"exit code {process.returncode} of: {script}")
        return took

    def attempt(self, line: Line, *, memory: bool = False) -> Took:
        """Let Rota do the work, in a process of its own."""
        secrets = {"pg": PASSWORD} | (self.store.secrets if "options" in (line.params or {}) else {})
        given = {"params": line.params, "restore": line.restore, "secrets": secrets, "identity": self._identity}
        environ = {**os.environ, "RUN_BACKUP_THREADS": _THREADS}
        if "server" in self.__dict__:
            environ["ROTA_POSTGRES_BIN"] = str(self.server.programs)
        order, told = self.root / "order.json", self.root / "told.json"
        order.write_text(json.dumps(given))
        argv = [sys.executable, "-m", "bench.backup", "--attempt", str(order), str(told)]
        used_s = _processor_s()
        with subprocess.Popen(argv, env=environ) as process:
            memory_mb = _most_memory_mb(process) if memory else 0.0
        if process.returncode:
            raise SystemExit(f"Rota's attempt ended with exit code {process.returncode}")
        found = json.loads(told.read_text())
        # Starting Python and importing the kind came before the attempt, as on a node.
        found["processor_s"] = _processor_s() - used_s - found["processor_s"]
        return Took(memory_mb=memory_mb, **found)

    def clear(self) -> None:
        """Remove what a turn has written."""
        shutil.rmtree(self.root / "backups", ignore_errors=True)
        if "store" in self.__dict__:
            for path in self.store.files.find("lake"):
                self.store.files.rm_file(path)

    def size_mb(self, line: Line) -> float:
        """The size of what the other programs have written."""
        if line.writes is None:
            return 0.0
        done = subprocess.run(["du", "-sb", str(line.writes)], capture_output=True, text=True, check=True)
        return int(done.stdout.split()[0]) / 1e6


def _physical(url: str) -> dict[str, Any]:
    return {"type": "postgres_physical", "url": url, "password": {"secret": "pg"}}


def fill_database(server: Server, size_mb: int) -> None:
    """Make the database `bench` with about `size_mb` of content, and read it once."""
    rows = size_mb * 1_000_000 // 2 // ROW_BYTES
    server.sql("postgres", "CREATE DATABASE bench")
    hexes = " || ".join(["md5(random()::text)"] * (ROW_BYTES // 32))
    server.sql("bench", f"CREATE TABLE hex AS SELECT i, {hexes} AS t FROM generate_series(1, {rows}) i")
    server.sql(
        "bench",
        "CREATE TABLE accounts (aid int, bid int, abalance int, filler char(84)); "
        f"INSERT INTO accounts SELECT i, i / 100000, 0, '' FROM generate_series(1, {rows * ROW_BYTES // 97}) i",
    )
    # Otherwise the first reader would write each page's hint bits.
    server.sql("bench", "VACUUM (FREEZE)")
    server.sql("bench", "CHECKPOINT; SELECT count(t) FROM hex; SELECT count(filler) FROM accounts")


def fill_folder(folder: Path, files: int) -> None:
    """Make many small files of 0 to 4 KB, half of whose content does not compress."""
    for number in range(files):
        inside = folder / f"{number // 1000:03}"
        if number % 1000 == 0:
            inside.mkdir(parents=True)
        (inside / f"{number:06}.txt").write_bytes(os.urandom(number % 2048) + b"some text " * (number % 205))


def _most_memory_mb(process: "subprocess.Popen[Any]") -> float:
    """Wait until a process has ended. Returns the most memory that it and all below it held at once."""
    most_kb = 0
    while process.poll() is None:
        most_kb = max(most_kb, sum(map(_pss_kb, [process.pid, *process_tree.below(process.pid)])))
        time.sleep(_LOOK_S)
    return most_kb / 1000


def _pss_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # it has ended
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def _processor_s() -> float:
    """The processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _attempt(order: Path, told: Path) -> None:
    """Do what the file `order` says, and write to the file `told` what that took."""
    given = json.loads(order.read_text())
    stored_bytes = 0
    with tempfile.TemporaryDirectory() as scratch:
        began_s, before_s = time.monotonic(), time.process_time()
        if given["restore"] is None:
            params = BackupParams.model_validate(given["params"])
            ctx = FakeContext(params, Path(scratch), secrets=given["secrets"])
            stored_bytes = Backup().run(ctx)["stored_bytes"]
        else:
            url, target = given["restore"]
            restore_backup(url, target, keys=BackupKeys(Identities.of_text(given["identity"], "the bench's own")))
        seconds = time.monotonic() - began_s
    told.write_text(json.dumps({"seconds": seconds, "stored_mb": stored_bytes / 1e6, "processor_s": before_s}))


def _measure(site: Site, name: str, turns: int) -> None:
    line = site.line(name)
    ours: list[Took] = []
    theirs: list[Took] = []
    size_mb = 0.0

    def our_turn(*, memory: bool = False) -> Took:
        if line.restore is not None:
            shutil.rmtree(line.restore[1], ignore_errors=True)
        took = site.attempt(line, memory=memory)
        site.clear()
        return took

    def their_turn(*, memory: bool = False) -> Took:
        site.run(line.before)
        return site.run(line.script, memory=memory)

    for turn in range(turns):
        if turn % 2 == 1:
            ours.append(our_turn())
        theirs.append(their_turn())
        size_mb = site.size_mb(line)
        if turn % 2 == 0:
            ours.append(our_turn())
    our_memory, their_memory = our_turn(memory=True), their_turn(memory=True)
    pairs = list(zip(ours, theirs, strict=True))
    ratio = median(their.seconds / mine.seconds for mine, their in pairs)
    processor_ratio = median(their.processor_s / mine.processor_s for mine, their in pairs)
    mine_s, their_s = (median(took.seconds for took in side) for side in (ours, theirs))
    each = " ".join(f"{mine.seconds:.2f}/{their.seconds:.2f}" for mine, their in pairs)
    print(
        f"{name:16} {ratio:5.2f} {processor_ratio:6.2f} {mine_s:8.2f} {their_s:8.2f} "
        f"{our_memory.memory_mb:9.0f} {their_memory.memory_mb:7.0f} "
        f"{ours[0].stored_mb:9.0f} {size_mb:8.0f}  {LINES[name]}  [{each}]",
        flush=True,
    )


def main() -> None:
    """Measure, and print a line for each."""
    parser = options_of(__doc__)
    parser.add_argument("--mb", type=int, default=2000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--attempt", nargs=2, type=Path, help="(used by itself)")
    options = parser.parse_args()
    if options.attempt:
        _attempt(*options.attempt)
        return
    print("                 ratio of proc-     Rota    other  Rota's MB   other  Rota's MB   other")
    print(
        "line             time  essor  seconds  seconds  of memory    same    stored    same  the other and [each turn]"
    )
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder, ExitStack() as stack:
        site = Site(Path(folder), stack, options.mb, options.files)
        for number, name in enumerate(options.only, 1):
            if why := why_not(name):
                print(f"{name:16} not taken: {why}", flush=True)
            else:
                _measure(site, name, options.turns)
            took_s = time.monotonic() - began_s
            left_s = took_s / number * (len(options.only) - number)
            print(f"{took_s / 60:.1f} min; about {left_s / 60:.1f} min left", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
