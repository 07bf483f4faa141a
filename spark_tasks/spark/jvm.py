"""Starts the JVM of a Spark driver directly, with no shell in between, and connects PySpark to it.

PySpark itself would start a chain of bash scripts and a first JVM, the launcher, which prints the command of the
driver's JVM. Here Python builds the command, so that neither a shell nor the launcher is needed. On a cluster the
command still comes from the launcher (`org.apache.spark.launcher`), because the operator's `spark-defaults.conf` may
change it.
"""

import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tasks.spark.java import VECTOR, Java, jvm_option

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

CHECK_S: Final = 0.01
"""The pause between two checks of whether the JVM is ready."""

MAIN: Final = "org.apache.spark.deploy.SparkSubmit"
_PYTHON_DRIVER: Final = "pyspark-shell"
"""The program that Spark runs in the JVM: a gateway for Python, which ends when its standard input is closed."""

_LAUNCHER: Final = "org.apache.spark.launcher.Main"

_OPENED: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""The packages of java.base to which Spark has access by reflection."""

LAUNCHER_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    f"--add-modules={VECTOR}",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""The options that Spark's launcher gives every driver. A test compares them with the installed launcher's."""

_CONNECTION: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The variable that names the file into which the JVM writes its port, and the secret for connections."""

_GATEWAY_PORT, _GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""The variables with which PySpark connects to a JVM that runs already."""


class JvmNotStarted(Exception):
    """The JVM of Spark ended before it could be used, or its command could not be determined."""


def driver_options(scratch: Path, *, local: bool) -> list[str]:
    """Return the options of a driver's JVM that keep it small, and its files in `scratch`. `local`: Spark is on this
    machine.

    Spark's XML functions accept a schema. Other schemas and DTDs to which it refers are not opened.
    """
    options = [
        "-XX:+UseSerialGC",
        f"-Djava.io.tmpdir={scratch / 'tmp'}",
        f"-Duser.home={scratch}",
        f"-Dderby.system.home={scratch / 'tmp'}",
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={scratch / 'tmp' / 'hs_err_pid%p.log'}",
        "-XX:-CreateCoredumpOnCrash",
        *(f"-Djavax.xml.accessExternal{what}=" for what in ("DTD", "Schema", "Stylesheet")),
    ]
    if local:
        # Code that still requests a URL gets a proxy that cannot exist: users may not listen at ports as low as this
        # one.
        for scheme in ("http", "https", "ftp"):
            options += [f"-D{scheme}.proxyHost=127.0.0.1", f"-D{scheme}.proxyPort=1"]
        options += ["-Dhttp.nonProxyHosts=", "-Dftp.nonProxyHosts="]
    return options


def options_for(java: Java, options: Sequence[str]) -> list[str]:
    """Return `options` for the JVM, without the vector module if `java` does not have it."""
    return [each for each in options if java.has_vector or each != f"--add-modules={VECTOR}"]


def driver_command(
    java: Java, spark_home: Path, configuration: Mapping[str, str], jvm_options: Sequence[str]
) -> list[str]:
    """Return the command of a driver's JVM on this machine alone, the same command that Spark's launcher would give.

    `configuration` is Spark's, with `spark.driver.memory`; `jvm_options` are the JVM's, one word each.
    """
    jars = spark_home / "jars"
    # The launcher puts the logging interface first, so that no other jar's copy of it is loaded.
    logging = sorted(str(jar) for jar in jars.glob("slf4j-api-*.jar"))
    return [
        str(java.home / "bin" / "java"),
        *("-cp", os.pathsep.join([str(spark_home / "conf"), *logging, f"{jars}{os.sep}*"])),
        f"-Xmx{configuration['spark.driver.memory']}",
        *jvm_options,
        *options_for(java, LAUNCHER_OPTIONS),
        *(MAIN, *_submitted(configuration)),
    ]


def launcher_command(
    java: Java,
    spark_home: Path,
    configuration: Mapping[str, str],
    jvm_options: Sequence[str],
    environment: Mapping[str, str],
) -> list[str]:
    """Return the command of a driver's JVM that Spark's launcher gives in that environment. Raises `JvmNotStarted`."""
    words = " ".join(map(jvm_option, jvm_options))
    told = _submitted({**configuration, "spark.driver.extraJavaOptions": words})
    asked = [str(java.home / "bin" / "java"), "-Xmx128m", "-cp", f"{spark_home / 'jars'}{os.sep}*", _LAUNCHER]
    scala = {"SPARK_SCALA_VERSION": "2.13"}  # otherwise the launcher looks for a build of Spark
    done = subprocess.run([*asked, MAIN, *told], env={**environment, **scala}, capture_output=True, check=False)
    marker, _, words_said = done.stdout.partition(b"\0\n")
    command = [os.fsdecode(word) for word in words_said.split(b"\0")[:-1]]
    if done.returncode or not command:
        said = (done.stderr or marker).decode(errors="replace").strip()
        raise JvmNotStarted(f"Spark's launcher gave no command for a driver (status {done.returncode}): {said[-500:]}")
    return options_for(java, command)


def _submitted(configuration: Mapping[str, str]) -> list[str]:
    return [*(word for name, value in configuration.items() for word in ("--conf", f"{name}={value}")), _PYTHON_DRIVER]


def start_jvm(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> "JavaGateway":
    """Start the JVM and connect PySpark to it. Returns the gateway; its `proc` is the JVM's process.

    `folder` is for a temporary file, in which the JVM says how to connect to it. The JVM inherits standard output and
    errors. It exits when this process exits, because its standard input is closed then. Ctrl-C in a terminal reaches
    this process only. Raises `JvmNotStarted`.
    """
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        file = Path(aside) / "connection"
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env={**environment, _CONNECTION: str(file)},
                preexec_fn=_become_jvm,  # noqa: PLW1509  two calls of the kernel, which take no lock
            )
        except OSError as error:
            raise JvmNotStarted(f"Spark's JVM could not be started: {command[0]}: {error.strerror}") from None
        try:
            gateway = _gateway(*_connection(command[0], process, file))
        except BaseException:  # no other process could use this JVM
            process.kill()
            process.wait()
            raise
    gateway.proc = process
    return gateway


def _become_jvm() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A driver's memory holds rows and credentials, so it must not be dumped. Its Python processes inherit this limit.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _connection(program: str, process: "subprocess.Popen[bytes]", file: Path) -> tuple[int, str]:
    """Wait until the JVM has put its complete `file` in place. Returns its port and secret. Raises `JvmNotStarted`."""
    while not file.exists():
        if (status := process.poll()) is not None:
            raise JvmNotStarted(_ended(program, status))
        time.sleep(CHECK_S)
    said = file.read_bytes()
    length = int.from_bytes(said[4:8], "big")
    return int.from_bytes(said[:4], "big"), said[8 : 8 + length].decode()


def _ended(program: str, status: int) -> str:
    how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
    why = ": if the machine is short of memory, the kernel has killed it" if status == -signal.SIGKILL else ""
    return f"Spark's JVM ({program}) ended with {how} before it was ready{why}; its output is above, in the log"


def _gateway(port: int, secret: str) -> "JavaGateway":
    from pyspark.java_gateway import launch_gateway

    os.environ[_GATEWAY_PORT], os.environ[_GATEWAY_SECRET] = str(port), secret
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark has no type for it
    finally:
        # Processes that this process starts later must not connect to the JVM.
        del os.environ[_GATEWAY_PORT], os.environ[_GATEWAY_SECRET]
    return gateway
