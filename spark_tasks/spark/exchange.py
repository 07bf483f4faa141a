"""The folder in which a driver puts files for its executors, which are on other machines if Spark has a cluster."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from spark_tasks.spark.session import SHARED, is_local_master


def exchange_folder(environ: Mapping[str, str], scratch: Path, task: str, token: int) -> Path:
    """Return the folder of the attempt with that token: in the shared folder if Spark has a cluster and a shared folder
    is set.

    Otherwise the folder is `scratch`.
    """
    shared = _shared(environ, task)
    return scratch if shared is None else shared / str(token)


def sweep_exchange(environ: Mapping[str, str], task: str, token: int) -> None:
    """Remove the files that attempts at the task with earlier tokens left in the shared folder."""
    shared = _shared(environ, task)
    if shared is None or not shared.is_dir():
        return
    for each in list(shared.iterdir()):
        if each.name.isdecimal() and int(each.name) < token:
            shutil.rmtree(each)


def _shared(environ: Mapping[str, str], task: str) -> Path | None:
    shared = environ.get(SHARED)
    return None if is_local_master(environ) or not shared else Path(shared) / task
