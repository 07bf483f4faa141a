"""A server under load, the store for its log, and the nodes that archive it: on addresses of their own, if possible."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from examples.demo.postgres import USER, Server, postgres_server, run_as_server
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from tasks.places.place import Place
from testkit.cluster import Cluster
from testkit.fake_context import FakeContext
from testkit.faults.network import SeparateCluster
from testkit.servers.object_store import ObjectStore, object_store_process

SERVER: Final = "server-253"
STORE: Final = "store-252"
"""Names of what is outside of the cluster; their addresses end in these numbers."""

PASSWORD: Final = "hush-hush"
LEDGER: Final = (
    "CREATE TABLE ledger (id bigserial PRIMARY KEY, at timestamptz, lsn pg_lsn, delta int, "
    "xid text DEFAULT pg_current_xact_id()::text)"
)
_SCALE: Final = 10
_LOAD: Final = """\\set aid random(1, 100000 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
INSERT INTO ledger (at, lsn, delta) VALUES (clock_timestamp(), pg_current_wal_insert_lsn(), :delta);
END;
"""
_SETTINGS: Final = (
    "max_slot_wal_keep_size = '8GB'",
    "archive_mode = on",
    "max_wal_size = '512MB'",
    "timezone = 'UTC'",
    "log_timezone = 'UTC'",
)
_NICE: Final = 10


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the measurement runs on."""

    #: Everything that it writes is in this folder.
    folder: Path
    #: The nodes.
    cluster: Cluster
    #: The server, over its socket.
    server: Server
    #: The folder with the server's own copy of its log.
    copy: Path
    #: The server's URL for the nodes.
    url: str
    #: The store for the log; None: a folder.
    store: ObjectStore | None

    @property
    def log_url(self) -> str:
        """Where the log is archived."""
        return f"{self.destination}/log"

    @property
    def destination(self) -> str:
        """The destination of the task."""
        return self.store.url("wal") if self.store else f"{self.folder}/to"

    @property
    def options(self) -> dict[str, Any]:
        """fsspec's options for it."""
        return self.store.options if self.store else {}

    def log_place(self, system: str = "") -> Place:
        """Where the log is archived, or that of one system in it."""
        return Place(f"{self.log_url}/{system}".rstrip("/"), self.options)

    @property
    def base_url(self) -> str:
        """Where the physical backups are."""
        return f"{self.folder}/to/base"

    def register(self) -> None:
        """Have the nodes archive the log from now on."""
        secrets = {"pg": PASSWORD, **(self.store.secrets if self.store else {})}
        for name, value in secrets.items():
            (self.cluster.secrets_dir / name).write_text(value)
        params = {
            "servers": [{"url": self.url, "password": {"secret": "pg"}}],
            "destination": self.destination,
            "options": self.store.references if self.store else {},
        }
        self.cluster.register("log", "wal", schedule={"continuous": True}, params=params)

    def back_up(self, number: int) -> None:
        """Make a physical backup, whose log is the archived one."""
        source = {"type": "postgres_physical", "url": self.server.url("postgres"), "password": {"secret": "pg"}}
        params = {"source": {**source, "wal": "archived"}, "destination": f"{self.folder}/to"}
        scratch = self.folder / f"scratch-{number}"
        scratch.mkdir()
        made = BackupParams.model_validate(params)
        Backup().run(FakeContext(made, scratch, task="base", token=number, secrets={"pg": PASSWORD}))

    @contextmanager
    def load(self, rate: int) -> Iterator[None]:
        """Have pgbench write within the block: so many transactions a second, or as many as it can (0)."""
        script = self.folder / "load.sql"
        script.write_text(_LOAD)
        options = ["-n", "-f", str(script), "-T", "86400", "-c", "4", "-D", f"scale={_SCALE}"]
        options += ["-R", str(rate)] if rate else []
        command = [str(shutil.which("nice")), "-n", str(_NICE), *_pgbench(self.server), *options]
        writing = subprocess.Popen(
            command, env=programs_environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            writing.terminate()  # a job in the background of a shell ignores SIGINT
            writing.wait()


@contextmanager
def made_site(folder: Path, *, separate: bool) -> Iterator[Site]:
    """A server with pgbench's tables and the ledger, and a cluster; `separate`: in network namespaces, with S3."""
    copy = folder / "copy"
    copy.mkdir()
    copy.chmod(0o777)
    with ExitStack() as parts:
        cluster: Cluster
        if separate:
            cluster = parts.enter_context(SeparateCluster(folder / "cluster", outside=(SERVER, STORE)))
        else:
            cluster = parts.enter_context(Cluster(folder / "cluster"))
        server = parts.enter_context(postgres_server(PASSWORD))
        host = cluster.host(SERVER) if separate else None
        _configure(server, copy, host)
        store = None
        if separate:
            store = parts.enter_context(object_store_process(folder / "store.log", cluster.host(STORE)))
        cluster.start()
        cluster.wait_until_whole(120)
        url = server.url("postgres") if host is None else f"postgresql://{USER}@{host}:5432/postgres"
        yield Site(folder=folder, cluster=cluster, server=server, copy=copy, url=url, store=store)


def _configure(server: Server, copy: Path, host: str | None) -> None:
    keep = f"archive_command = 'cp %p {copy}/%f.new && mv {copy}/%f.new {copy}/%f'"
    for line in (*_SETTINGS, keep):
        server.sql("postgres", f"ALTER SYSTEM SET {line}")
    data = server.folder / "data"
    control = [str(server.programs / "pg_ctl"), "-D", str(data), "-w", "-t", "60", "-m", "fast"]
    control += ["-l", str(server.folder / "server.log")]
    if host is not None:
        with (data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {host}/24 scram-sha-256\nhost replication all {host}/24 scram-sha-256\n")
        control += ["-o", f"-c listen_addresses={host} -c unix_socket_directories={server.folder} -c fsync=off"]
    run_as_server([*control, "restart"], server.folder)
    # Attempts have the niceness 10. The server would be on another machine; here it must not starve them.
    postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])
    os.setpriority(os.PRIO_PROCESS, postmaster, _NICE)
    server.sql("postgres", LEDGER)
    initialize = [*_pgbench(server), "-i", "-q", "-s", str(_SCALE)]
    subprocess.run(initialize, env=programs_environ(), check=True, capture_output=True)


def _pgbench(server: Server) -> list[str]:
    return [str(server.programs / "pgbench"), "-h", quote(str(server.folder), safe="/"), "-U", USER, "postgres"]


def programs_environ() -> Mapping[str, str]:
    """The environment of PostgreSQL's programs."""
    return {"PGPASSWORD": PASSWORD, "PATH": "", "TZ": "UTC"}
