"""A Spark session for one attempt: small, with few log lines and long timeouts; on loopback or on a cluster.

`RUN_SPARK_MASTER` in the worker's environment is the node's setting `ROTA_SPARK_MASTER` (see `ENVIRONMENT`); without it
the master is `local[*]`. `RUN_SPARK_MEMORY`, from `ROTA_SPARK_MEMORY`, is the driver's heap, 512m by default.

**Started in advance**: a worker may start the session before there is an attempt for it (`prepare`). The session serves
one attempt.

**Long timeouts**: while its member's lease has lapsed, a worker is frozen with SIGSTOP together with its JVM. When it
is thawed, every timer of Spark that became due in the meantime fires at once. So each timer that could mistake the
pause for a dead peer is set far above any pause.
"""

import importlib
import logging
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.spark import class_cache, jvm
from spark_tasks.spark.cluster import CORES, EXECUTOR_MEMORY, cluster_settings, on_cluster
from spark_tasks.spark.driver_environment import driver_environment, link_programs, python_environment
from spark_tasks.spark.java import find_java
from spark_tasks.spark.lockdown import (
    SQL_SETTINGS,
    file_system_settings,
    forget_reflection,
    ui_environment,
    ui_settings,
)
from spark_tasks.spark.master import REGISTRATION_S, SparkAway, own_address
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger("rota.spark")

MASTER = "RUN_SPARK_MASTER"
"""The environment variable that names the Spark master."""

MEMORY = "RUN_SPARK_MEMORY"
"""The environment variable that sets the driver's heap."""

SHARED = "RUN_SPARK_SHARED"
"""The environment variable that names a folder which nodes and executors see at the same path."""

UI = "RUN_SPARK_UI"
"""The environment variable that turns Spark's UI on (`spark.ui`)."""

JVM_OPTIONS = "RUN_SPARK_JVM_OPTIONS"
"""The environment variable with options of the driver's JVM that replace the options for the class cache."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    MASTER: "ROTA_SPARK_MASTER",
    MEMORY: "ROTA_SPARK_MEMORY",
    CORES: "ROTA_SPARK_CORES",
    EXECUTOR_MEMORY: "ROTA_SPARK_EXECUTOR_MEMORY",
    SHARED: "ROTA_SPARK_SHARED",
    UI: "ROTA_SPARK_UI",
}
"""The node's settings that a kind on Spark needs (`tasks.kind.Kind`), because workers do not inherit ROTA_*
variables.
"""

AT_ONCE: Final = "ROTA_SPARK_SESSIONS"
"""The node's setting that limits how many sessions it has at once (`tasks.kind.Kind`)."""

_NOT_REGISTERED: Final = "spark-application-"
"""The prefix of an application id that Spark itself generates if no master has given one."""

_prepared: "Final[list[SparkSession]]" = []
"""The session that `prepare` has started for this process's attempt, until the attempt takes it."""

_LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n
"""

_LOG_LEVELS = {
    # A job's failure is raised in Python and reported there, in one line.
    "task": ("org.apache.spark.scheduler.TaskSetManager", "off"),
    "executor": ("org.apache.spark.executor.Executor", "off"),
    "writer": ("org.apache.spark.sql.execution.datasources", "off"),
    "write": ("org.apache.spark.internal.io", "off"),
    "native": ("org.apache.hadoop.util.NativeCodeLoader", "error"),
    "address": ("org.apache.spark.util.Utils", "off"),
    # This logger warns whenever the process was paused, which is normal here.
    "pause": ("org.apache.hadoop.util.JvmPauseMonitor", "error"),
}


def is_local_master(environ: Mapping[str, str]) -> bool:
    """Whether Spark runs on this machine alone."""
    return (environ.get(MASTER) or "local[*]").startswith("local")


def attempt_configuration(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Return Spark's configuration for an attempt with the scratch folder `scratch`."""
    master = environ.get(MASTER) or "local[*]"
    chosen = {
        "spark.master": master,
        "spark.driver.memory": environ.get(MEMORY) or "512m",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.showConsoleProgress": "false",
        **SQL_SETTINGS,
        "spark.sql.session.timeZone": "UTC",
        # Delta needs timestamps in microseconds; Spark's default is the older INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "8",
        # The driver itself lists the files of a batch. For more than 32 files, Spark would run a job, which takes
        # longer.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        # Delta's log says which files belong to a table, so Spark's own commit protocol and markers are not needed.
        "spark.sql.sources.commitProtocolClass": (
            "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
        ),
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Long timeouts (see above), because the peers of a frozen session are frozen with it.
        "spark.network.timeout": "3600s",
        "spark.rpc.askTimeout": "3600s",
        "spark.rpc.lookupTimeout": "3600s",
        "spark.executor.heartbeatInterval": "600s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "3600000",
        "spark.sql.broadcastTimeout": "3600s",
        "spark.python.authenticate.socketTimeout": "3600s",
        "spark.cleaner.periodicGC.interval": "30min",
    }
    chosen |= file_system_settings(local=is_local_master(environ))
    chosen |= ui_settings(environ.get(UI, ""), local=is_local_master(environ))
    if is_local_master(environ):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        chosen |= cluster_settings(environ)
    return chosen


@contextmanager
def spark_session(app: str, scratch: Path, environ: Mapping[str, str] | None = None) -> "Iterator[SparkSession]":
    """Start a session for the block. All its temporary files are in `scratch`.

    Changes the environment of this process, which is the worker. Raises `java.NoJava`, pyspark's errors, and on a
    cluster `SparkAway`, `MasterUnfit` and `ExecutorsUnfit`.
    """
    given = os.environ if environ is None else environ
    session = _take_prepared(app)
    if session is None:
        session = _begin(app, scratch, given)
    if (url := session.sparkContext.uiWebUrl) is not None:
        _log.info("Spark's UI is at %s while this attempt runs", url)
    try:
        with nullcontext() if is_local_master(given) else on_cluster(session, given[MASTER]):
            yield session
    finally:
        session.stop()


def prepare(environment: Mapping[str, str], scratch: Path) -> None:
    """Start the session for the next `spark_session` call, before there is an attempt for it (`tasks.kind.Kind`).

    One small job is run, because the first job of a JVM takes a second longer than others. For a cluster only the JVM
    is started, because a session would hold executors that other attempts could use.
    """
    for module in ("deltalake", "pyarrow.parquet", "pyspark.sql.functions", "pyspark.sql.types"):
        importlib.import_module(module)
    if not is_local_master(environment):
        _have_jvm(scratch, environment, attempt_configuration(environment, scratch))
        return
    session = _begin("rota", scratch, environment)
    session.range(1).selectExpr("count(1)").collect()
    _prepared.append(session)


def _take_prepared(app: str) -> "SparkSession | None":
    """Return the session that `prepare` has started, for the attempt `app`. Returns None if there is none, or its JVM
    has ended.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and gateway.proc.poll() is not None:
        _forget_jvm()
    if not _prepared:
        return None
    session = _prepared.pop()
    try:
        session.sparkContext.setJobGroup(app, app)
    except Py4JError as error:  # the JVM was killed a moment ago
        _log.warning("the Spark session that was started beforehand cannot be used, starting another: %s", error)
        _forget_jvm()
        return None
    return session


def _forget_jvm() -> None:
    """Make pyspark forget its JVM, so that it starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    _prepared.clear()


def _begin(app: str, scratch: Path, given: Mapping[str, str]) -> "SparkSession":
    if is_local_master(given):
        return _started(app, scratch, given, attempt_configuration(given, scratch))
    return _begin_on_cluster(app, scratch, given)


def _begin_on_cluster(app: str, scratch: Path, given: Mapping[str, str]) -> "SparkSession":
    master = given[MASTER]
    chosen: dict[str, str] = {}
    if host := own_address(master):
        chosen["spark.driver.host"] = chosen["spark.driver.bindAddress"] = host
    silent = SparkAway(
        f"the Spark master {master} has not answered for {REGISTRATION_S:g} s, though its port is open: it is stopped, "
        "stands by for another one, or is of another version than the Spark of this node"
    )
    began_s = time.monotonic()
    try:
        session = _started(app, scratch, given, attempt_configuration(given, scratch) | chosen)
    except Exception as error:
        if time.monotonic() - began_s < REGISTRATION_S:
            raise
        raise silent from error
    if session.sparkContext.applicationId.startswith(_NOT_REGISTERED):
        session.stop()
        raise silent
    _log.info("the Spark master is %s; executors reach this driver at %s", master, chosen.get("spark.driver.host"))
    return session


def _started(app: str, scratch: Path, given: Mapping[str, str], configuration: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    _have_jvm(scratch, given, configuration)
    builder = SparkSession.builder.appName(app)
    for name, value in configuration.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    if is_local_master(given):
        session.sparkContext.environment.update(python_environment(os.environ))
    forget_reflection(session)
    return session


def _have_jvm(scratch: Path, given: Mapping[str, str], configuration: Mapping[str, str]) -> None:
    """Start the JVM of a session with that configuration, unless this process has a JVM.

    Changes this process's environment, so that its own temporary files are in `scratch`, too.
    """
    import pyspark
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger

    # This logger prints the JVM's stack of each error, which is raised in Python and reported there, in one line.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    temporary = scratch / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    # The Python of executors, for rows that Python writes: this Python, unless the cluster has its own somewhere else.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkContext._gateway is not None:
        return
    java, home, local = find_java(given), Path(pyspark.__file__).parent, is_local_master(given)
    log4j = _write_log4j(scratch)
    if (asked := given.get(JVM_OPTIONS)) is not None:
        more = shlex.split(asked)
    else:
        more = class_cache.using(java, class_cache.cache_file(java, pyspark.__version__))
    options = [*jvm.driver_options(scratch, local=local), f"-Dlog4j2.configurationFile={log4j.as_uri()}", *more]
    address = {"SPARK_LOCAL_IP": host} if (host := configuration.get("spark.driver.host")) else {}
    own = address | ui_environment(given.get(UI, ""))
    environment = driver_environment(os.environ, java, home, scratch, own, local=local)
    link_programs(os.environ, scratch)
    if local:
        command = jvm.driver_command(java, home, configuration, options)
    else:
        command = jvm.launcher_command(java, home, configuration, options, environment)
    SparkContext._ensure_initialized(gateway=jvm.start_jvm(command, environment, temporary))


def _write_log4j(scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    lines = [_LOG4J]
    for short, (name, level) in _LOG_LEVELS.items():
        lines.append(f"logger.{short}.name = {name}\nlogger.{short}.level = {level}\n")
    path = scratch / "log4j2.properties"
    path.write_text("".join(lines), encoding="utf-8")
    return path


CHECK_S = 0.2
"""The seconds between two checks of whether the attempt should stop."""


@contextmanager
def session_of(ctx: Context[Any]) -> "Iterator[SparkSession]":
    """Start the session of an attempt for the block. Its jobs are cancelled once the attempt should stop."""
    with spark_session(f"{ctx.task} {ctx.run_id}", ctx.scratch) as spark, stopping(ctx, spark):
        yield spark


@contextmanager
def stopping(ctx: Context[Any], spark: "SparkSession") -> Iterator[None]:
    """Within the block, cancel Spark's running jobs once the attempt should stop."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(CHECK_S):
            if ctx.cancelled:
                spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, name="stop-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
