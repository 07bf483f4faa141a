"""The programs and folders that a Spark session uses, for the confinement of attempts (`tasks.needs`)."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from spark_tasks.spark.driver_environment import hadoop_programs
from spark_tasks.spark.java import NoJava, find_java
from spark_tasks.spark.session import SHARED, is_local_master
from tasks.access import Access
from tasks.needs import Tool

SPARK_TOOLS: Final = "spark_tasks.spark.tools:spark_tools"
"""The import path of the function below."""


def spark_tools(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """Yield Java, Python for rows that Python reads and writes, Hadoop's programs, and the folder shared with a
    cluster.

    `access` is not used, because no param names these. Without a Java no tools are yielded, and the session reports the
    lack.
    """
    try:
        home = find_java(environ).home
    except NoJava:
        return
    yield Tool(str(home), "read")
    # Distributions keep the configuration that an administrator may change in /etc, with symlinks to it.
    for folder in ("conf", "lib/security"):
        yield from (Tool(str(path), "read") for path in (home / folder).rglob("*") if path.is_symlink())
    for program in ("java", "jspawnhelper"):  # java starts other programs through jspawnhelper
        for folder in ("bin", "lib"):
            yield Tool(str(home / folder / program), "run")
    yield from (Tool(program, "run") for program in hadoop_programs(environ).values())
    python = environ.get("PYSPARK_PYTHON") or sys.executable
    if python.startswith("/"):
        yield Tool(os.path.realpath(python), "run")
        yield Tool(str(Path(python).parent.parent), "read")
    if (shared := environ.get(SHARED)) and not is_local_master(environ):
        yield Tool(shared, "write")
