"""Restricts a Spark session: its file systems, SQL's access to files and to the JVM, and Spark's web pages.

**File systems**: Spark opens any URL for which Hadoop has a file system, and pip's Spark has some that fetch from any
host. A session may open the files of this machine, and on a cluster those of the file systems that its operator has set
up. The params and the node's settings say which files a task may fetch, and Python fetches them (`spark_tasks.files`).

**SQL** in a task's params is confined to its views: it reaches neither files nor methods of the JVM.

**Web pages** about a session have no password, so they are off unless a node's setting turns them on. The value `1`
serves them on this machine's loopback only; if Spark runs on other machines they stay off, because Spark would serve
them on every address. The value `host` serves them on every address.
"""

import logging
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFF: Final = "rota.file.system.is.off"
"""The class name that Hadoop is given for a file system to turn off. No such class exists, so Hadoop's error has this
name.
"""

_FETCHING: Final = ("http", "https", "ftp", "sftp")
"""The file systems that fetch from a host in the URL. No cluster needs them."""

_WRAPPING: Final = ("har", "viewfs", "nullscan", "pfile")
"""The file systems that wrap others under another name."""

_OF_CLUSTERS: Final = (
    *("hdfs", "webhdfs", "swebhdfs", "ofs", "o3fs"),
    *("s3a", "abfs", "abfss", "wasb", "wasbs", "adl", "gs", "oss", "obs", "cosn"),
)
"""The file systems that a cluster's operator may have configured. Most of their classes are not in pip's Spark."""

OFF_ON_CLUSTERS: Final = (*_FETCHING, *_WRAPPING)
OFF_LOCALLY: Final = (*OFF_ON_CLUSTERS, *_OF_CLUSTERS)
"""All file systems that pip's Spark has or names, except `file`. A test compares them with the installed jars."""


def file_system_settings(*, local: bool) -> dict[str, str]:
    """Return Spark's configuration that turns file systems off. `local`: Spark runs on this machine alone.

    >>> file_system_settings(local=True)["spark.hadoop.fs.http.impl"]
    'rota.file.system.is.off'
    >>> "spark.hadoop.fs.s3a.impl" in file_system_settings(local=False)
    False
    """
    schemes = OFF_LOCALLY if local else OFF_ON_CLUSTERS
    return {f"spark.hadoop.fs.{kind}{scheme}.impl": OFF for kind in ("", "AbstractFileSystem.") for scheme in schemes}


SQL_SETTINGS: Final[Mapping[str, str]] = {
    # SQL may not read a file as a table: a task reads only the files in its params.
    "spark.sql.runSQLOnFiles": "false",
    # `${env:X}` and `${system:X}` stay text: they are not replaced by variables and properties of the JVM.
    "spark.sql.variable.substitute": "false",
    # The parser evaluates nothing, so that `spark_tasks.sql` can check the parsed text before any evaluation.
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",
}
"""The settings of a session that runs SQL from a task's params."""

_REFLECTION: Final = ("reflect", "java_method", "try_reflect")
"""Functions that call any static method of the JVM."""


class ReflectionRemains(Exception):
    """This version of Spark keeps a function with which SQL may call any method of the JVM."""


def forget_reflection(spark: "SparkSession") -> None:
    """Remove from the session the functions that call methods of the JVM. Raises `ReflectionRemains`.

    This is a second layer: before it, `spark_tasks.sql` refuses these functions, and every function that it does not
    know.
    """
    jvm: Any = spark._jvm
    registry = spark._jsparkSession.sessionState().functionRegistry()
    some, identifier = jvm.scala.Option.apply, jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    for name in _REFLECTION:
        if spark.catalog.functionExists(name):
            qualified = identifier(name, some("builtin"), some("system"))
            if not registry.dropFunction(qualified):
                registry.dropFunction(identifier(name))  # the name in older versions of Spark
            if spark.catalog.functionExists(name):
                raise ReflectionRemains(
                    f"Spark {spark.version} keeps the function {name}: install the version in the lock file"
                )


_log = logging.getLogger("rota.spark")

LOOPBACK: Final = "1"
EVERYWHERE: Final = "host"


def ui_settings(asked: str, *, local: bool) -> dict[str, str]:
    """Return Spark's configuration for the UI that is requested. `local`: Spark runs on this machine alone.

    >>> ui_settings("", local=True)
    {'spark.ui.enabled': 'false'}
    >>> ui_settings("1", local=True)
    {'spark.ui.enabled': 'true', 'spark.ui.port': '0', 'spark.ui.killEnabled': 'false'}
    """
    on = asked == EVERYWHERE or (asked == LOOPBACK and local)
    if not on and asked not in ("", "0"):
        why = "would be on every address: ask for it with `host`" if asked == LOOPBACK else "is not 0, 1 or host"
        _log.warning("Spark's UI stays off: ROTA_SPARK_UI=%s %s", asked, why)
    if not on:
        return {"spark.ui.enabled": "false"}
    return {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.ui.killEnabled": "false"}


def ui_environment(asked: str) -> dict[str, str]:
    """Return the environment variables that set the UI's address, for which Spark has no configuration.

    >>> ui_environment("1"), sorted(ui_environment("host"))
    ({}, ['SPARK_LOCAL_IP', 'SPARK_PUBLIC_DNS'])
    """
    if asked != EVERYWHERE:
        return {}
    return {"SPARK_LOCAL_IP": "0.0.0.0", "SPARK_PUBLIC_DNS": socket.gethostname()}  # noqa: S104 - it was asked for
