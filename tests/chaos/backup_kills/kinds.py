"""The kinds of jobs that are killed, each with a cluster of three nodes and what it works on."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from testkit.cluster import Cluster
from testkit.servers.mariadb_server import why_no_mariadb
from tests.chaos.backup_kills.jobs import BackupJob, CopiesJob, DrillJob, Job, RestoreJob
from tests.chaos.backup_kills.killing import WAIT_S, Killing
from tests.chaos.backup_kills.sources import (
    IncrementalServer,
    ManyFiles,
    MariadbDatabases,
    OneDatabase,
    ProgramOutput,
    SeveralDatabases,
    SqliteFile,
    WholeServer,
)

KINDS: Final[Mapping[str, Callable[[ExitStack, Path], Job]]] = {
    "postgres": partial(BackupJob, make=OneDatabase),
    "databases": partial(BackupJob, make=SeveralDatabases),
    "physical": partial(BackupJob, make=WholeServer),
    "incremental": partial(BackupJob, make=IncrementalServer),
    "mariadb": partial(BackupJob, make=MariadbDatabases),
    "sqlite": partial(BackupJob, make=SqliteFile),
    "folder": partial(BackupJob, make=ManyFiles),
    "stream": partial(BackupJob, make=ProgramOutput),
    "copies": CopiesJob,
    "drill": DrillJob,
    "restore": RestoreJob,
}

_NEEDS: Final = {"physical": ("psycopg2",), "incremental": ("psycopg2",), "copies": ("moto.server", "s3fs")}


def why_not(kind: str) -> str:
    """Say what this machine lacks for a kind; "": nothing."""
    missing = [name for name in _NEEDS.get(kind, ()) if find_spec(name.partition(".")[0]) is None]
    return why_no_mariadb() if kind == "mariadb" else f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def killed_cluster(kind: str, folder: Path, undisturbed: int = 2) -> Iterator[Killing]:
    """Start nodes and what the job works on; let it run `undisturbed` times. The folder stays if it goes wrong."""
    # A program may make nothing in a folder that has the nodes' own files below it.
    for name in ("cluster/tmp", "to"):
        (folder / name).mkdir(parents=True)
    with ExitStack() as stack:
        job = KINDS[kind](stack, folder)
        env = {**job.env, "TMPDIR": str(folder / "cluster" / "tmp")}
        cluster = stack.enter_context(Cluster(folder / "cluster", env=env))
        for name, value in job.secrets.items():
            (cluster.secrets_dir / name).write_text(value)
        cluster.start()
        cluster.wait_until_whole(WAIT_S)
        killing = Killing(cluster, job, folder)
        for _ in range(undisturbed):
            killing.undisturbed()
        yield killing
    if not killing.wrong:
        shutil.rmtree(folder)
