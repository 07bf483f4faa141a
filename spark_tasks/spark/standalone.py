"""Runs a master or a worker of a standalone Spark cluster from the Spark and the Java of this installation.

    python -m spark_tasks.spark.standalone FOLDER master --host spark-master --port 7077
    python -m spark_tasks.spark.standalone FOLDER worker --cores 2 --memory 2g spark://spark-master:7077

Executors write into FOLDER. Its file system must allow running programs, because Java loads libraries that it has
written there. The other arguments are Spark's own options. Spark's own variables keep the values that are set already.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_tasks.spark.java import java_home

CLASSES: Final[Mapping[str, str]] = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


def variables(environ: Mapping[str, str], folder: Path, home: Path) -> dict[str, str]:
    """Return the environment of a daemon with the folder `folder` and Spark in `home`. Raises `java.NoJava`.

    Executors inherit it from their worker.
    """
    temporary = str(folder / "tmp")
    own = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java_home(environ, folder)),
        "TMPDIR": temporary,
        "JAVA_TOOL_OPTIONS": f"{environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={temporary}".strip(),
    }
    defaults = {
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": temporary,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
        # This server would accept programs from anybody.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true",
    }
    return {**defaults, **environ, **own}


def main(folder: str, daemon: str, *options: str) -> None:
    """Replace this process by the daemon."""
    import pyspark

    home, root = Path(pyspark.__file__).parent, Path(folder).resolve()
    (root / "tmp").mkdir(parents=True, exist_ok=True)
    program = home / "bin" / "spark-class"
    os.execve(program, [str(program), CLASSES[daemon], *options], variables(os.environ, root, home))  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
