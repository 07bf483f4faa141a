"""Which of Hadoop's file systems a session may open: the files of this machine, and on a cluster those that its
operator has set up.

Spark opens any URL for which Hadoop has a file system, and pip's Spark has some that fetch from any host. The params
and the node's settings say which files a task may fetch, and Python fetches them (`spark_tasks.files`).
"""

from typing import Final

OFF: Final = "rota.file.system.is.off"
"""The class that Hadoop is told to use. There is none of that name, so the error names it."""

_FETCHING: Final = ("http", "https", "ftp", "sftp")
"""Those that fetch from a host that the URL names. No cluster needs them."""

_WRAPPING: Final = ("har", "viewfs", "nullscan", "pfile")
"""Those that are other file systems under another name."""

_OF_CLUSTERS: Final = (
    *("hdfs", "webhdfs", "swebhdfs", "ofs", "o3fs"),
    *("s3a", "abfs", "abfss", "wasb", "wasbs", "adl", "gs", "oss", "obs", "cosn"),
)
"""Those that a cluster's operator may have configured. Most of their classes are not in pip's Spark."""

OFF_ON_CLUSTERS: Final = (*_FETCHING, *_WRAPPING)
OFF_LOCALLY: Final = (*OFF_ON_CLUSTERS, *_OF_CLUSTERS)
"""All that pip's Spark has or names, but `file`. A test compares them with the installed jars."""


def file_system_settings(*, local: bool) -> dict[str, str]:
    """Spark's configuration that turns file systems off. `local`: Spark runs on this machine alone.

    >>> file_system_settings(local=True)["spark.hadoop.fs.http.impl"]
    'rota.file.system.is.off'
    >>> "spark.hadoop.fs.s3a.impl" in file_system_settings(local=False)
    False
    """
    schemes = OFF_LOCALLY if local else OFF_ON_CLUSTERS
    return {f"spark.hadoop.fs.{kind}{scheme}.impl": OFF for kind in ("", "AbstractFileSystem.") for scheme in schemes}
