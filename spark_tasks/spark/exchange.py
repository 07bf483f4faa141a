"""The folder in which a driver puts files for its executors, which are on other machines if Spark has a cluster."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from spark_tasks.spark.session import SHARED, is_local_master


def exchange_folder(environ: Mapping[str, str], scratch: Path, task: str, token: int) -> Path:
    """The folder of the attempt with that token: in the shared folder if Spark has a cluster and there is one.

    Else it is `scratch`. What attempts with older tokens left in the shared folder is removed.
    """
    shared = environ.get(SHARED)
    if is_local_master(environ) or not shared:
        return scratch
    folder = Path(shared) / task
    for left in _older(folder, token):
        shutil.rmtree(left)
    return folder / str(token)


def _older(folder: Path, token: int) -> list[Path]:
    if not folder.is_dir():
        return []
    return [each for each in folder.iterdir() if each.name.isdecimal() and int(each.name) < token]
