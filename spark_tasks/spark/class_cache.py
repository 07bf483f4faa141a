"""The JVM's options for a cache of Spark's classes, with which a session starts in about half the time.

Most of a start goes into loading and checking some 20,000 classes. A JVM can store them in the form that they have in
memory: from Java 17 on in an archive of shared class data (JEP 350), from Java 25 on in an ahead-of-time cache, which
also has profiles of how the classes ran (JEP 514 and 515). A JVM uses a cache only if the cache was made with the same
Java, jars and relevant options; else it starts without a cache.

`python -m spark_tasks.spark.make_class_cache` makes the cache. The cache is in the Python environment, where only users
who may install programs can write, because a JVM trusts the content of a cache.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final

from spark_tasks.spark.java import Java
from spark_tasks.spark.jvm import driver_command, driver_options

AOT_SINCE: Final = 25
"""The first Java that makes an ahead-of-time cache in one run."""


def cache_file(java: Java, pyspark_version: str, prefix: Path | None = None) -> Path:
    """Return the path of the cache for that Java and that pyspark, even if it was not made yet. `prefix` is the Python
    environment's folder.

    A JVM with other options or another class path needs another cache, so the name depends on both.
    """
    library = java.home / "lib" / "server" / "libjvm.so"
    try:
        facts = library.stat()
        about = f"{java.home.resolve()} {facts.st_size} {facts.st_mtime_ns}"
    except OSError:  # not OpenJDK's layout: the JVM itself checks whether the cache fits
        about = str(java.home.resolve())
    options = driver_options(Path("scratch"), local=True)
    launch = driver_command(java, Path("spark"), {"spark.driver.memory": ""}, options)
    digest = hashlib.sha256(f"{about} {java.major} {pyspark_version} {launch}".encode()).hexdigest()[:16]
    folder = (Path(sys.prefix) if prefix is None else prefix) / "share" / "rota"
    return folder / f"spark-classes-{digest}.{'aot' if java.major >= AOT_SINCE else 'jsa'}"


def using(java: Java, file: Path) -> list[str]:
    """Return the options of a JVM that uses the cache; empty if the cache does not exist."""
    if not file.is_file():
        return []
    if java.major >= AOT_SINCE:
        return [f"-XX:AOTCache={file}", "-Xlog:aot*=off"]
    return [f"-XX:SharedArchiveFile={file}", "-Xlog:cds*=off"]


def making(java: Java, file: Path) -> list[str]:
    """Return the options of a JVM that writes the cache when it ends."""
    if java.major >= AOT_SINCE:
        return [f"-XX:AOTCacheOutput={file}", "-Xlog:aot*=off"]
    return [f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds*=off"]
