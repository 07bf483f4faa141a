"""The environment of a driver's JVM and of its Python processes: only variables that are known to be needed.

Other variables are not inherited, because SQL can read the environment of the JVM. Python processes run only the code
of kinds and of installed transforms, and get more: the variables for access to an object store with the node's
credentials.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_tasks.spark.java import Java
from tasks.processes import MARK, RUN_MARK

_PROGRAMS: Final = ("chmod", "rm")
"""The programs that Hadoop and Spark call by name. The PATH of the JVM contains only these."""

_KEPT: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", MARK, RUN_MARK)
"""The variables that the JVM inherits from its worker."""

_KEPT_ON_CLUSTERS: Final = (
    *("HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "SPARK_USER"),
    *("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "YARN_CONF_DIR", "KRB5CCNAME", "KRB5_CONFIG", "KUBECONFIG"),
)
"""Further variables, in which an operator describes the cluster to a driver."""

_STORES: Final = ("AWS_", "AZURE_", "GOOGLE_", "S3FS_", "FSSPEC_")
"""Prefixes of the variables in which libraries look for credentials and endpoints of object stores."""

_NETWORK: Final = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ssl_cert_file", "ssl_cert_dir")
_CERTIFICATES: Final = ("requests_ca_bundle", "curl_ca_bundle")
"""The variables, in lower case, in which libraries look for proxies and for the certificates to trust."""


def driver_environment(
    environ: Mapping[str, str], java: Java, spark_home: Path, scratch: Path, own: Mapping[str, str], *, local: bool
) -> dict[str, str]:
    """Return the environment of a driver's JVM.

    `environ` is the worker's environment, with PYSPARK_PYTHON; `own` are more variables, such as the driver's address;
    `local` says whether Spark runs on this machine alone. The PATH has the folder that `link_programs` fills and, if
    PYSPARK_PYTHON is a name without a folder, the folder of that Python.
    """
    kept = (*_KEPT, *(() if local else _KEPT_ON_CLUSTERS))
    python = environ["PYSPARK_PYTHON"]
    path = [str(programs_folder(scratch))]
    if os.sep not in python and (found := shutil.which(python, path=environ.get("PATH", os.defpath))):
        path.append(str(Path(found).parent))
    return {
        "HOME": str(scratch),
        **{name: environ[name] for name in kept if name in environ},
        "PATH": os.pathsep.join(path),
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "TMPDIR": str(scratch / "tmp"),
        "SPARK_LOCAL_DIRS": str(scratch / "tmp"),
        "PYSPARK_PYTHON": python,
        "PYTHONHASHSEED": "0",  # as in Spark's scripts, because Python's hashes decide the partitions of rows
        "SPARK_CONNECT_MODE": "0",
        **own,
    }


def python_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the Python processes of a driver on this machine get in addition to the JVM's.

    >>> python_environment({"HOME": "/root", "AWS_PROFILE": "p", "https_proxy": "http://p", "PGPASSWORD": "s"})
    {'HOME': '/root', 'AWS_PROFILE': 'p', 'https_proxy': 'http://p'}
    """
    known = ("home", *_NETWORK, *_CERTIFICATES)
    return {name: value for name, value in environ.items() if name.lower() in known or name.startswith(_STORES)}


def programs_folder(scratch: Path) -> Path:
    """Return the folder of the programs that a driver's JVM may call by name."""
    return scratch / "bin"


def hadoop_programs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of the programs that Hadoop and Spark call by name, except those that this machine lacks."""
    path = os.pathsep.join((os.defpath, environ.get("PATH", "")))
    return {name: found for name in _PROGRAMS if (found := shutil.which(name, path=path)) is not None}


def link_programs(environ: Mapping[str, str], scratch: Path) -> None:
    """Fill `programs_folder` with symlinks to `hadoop_programs`. If a program is missing, the caller that needs it
    reports that.
    """
    folder = programs_folder(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in hadoop_programs(environ).items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(found)
