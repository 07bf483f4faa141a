"""The command and the environment of a driver's JVM, and what is said of one that does not start. Without Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_tasks.spark.driver_environment import driver_environment, link_programs, programs_folder, python_environment
from spark_tasks.spark.java import Java
from spark_tasks.spark.jvm import JvmNotStarted, driver_command, driver_options, launcher_command, start_jvm

CONFIGURATION = {"spark.driver.memory": "700m", "spark.app.name": "it's a name"}


def _script(folder: Path, text: str) -> Path:
    """A program in place of Java."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_each_word_of_the_command_is_a_word_whatever_is_in_it(tmp_path: Path) -> None:
    options = driver_options(tmp_path / "a b", local=True)
    command = driver_command(Java(Path("/java"), 17, True), Path("/spark"), CONFIGURATION, options)
    assert command[0] == "/java/bin/java"
    assert command[command.index("-cp") + 1] == "/spark/conf:/spark/jars/*"
    assert "-Xmx700m" in command
    assert f"-Djava.io.tmpdir={tmp_path}/a b/tmp" in command
    assert command[-5:] == [
        *("--conf", "spark.driver.memory=700m", "--conf", "spark.app.name=it's a name"),
        "pyspark-shell",
    ]


@pytest.mark.parametrize("has_vector", [True, False])
def test_a_module_that_java_lacks_is_not_asked_for(*, has_vector: bool) -> None:
    command = driver_command(Java(Path("/java"), 17, has_vector), Path("/spark"), CONFIGURATION, [])
    assert ("--add-modules=jdk.incubator.vector" in command) == has_vector


def test_the_jvm_gets_what_is_known_and_nothing_else(tmp_path: Path) -> None:
    given = {
        "PYSPARK_PYTHON": "/venv/bin/python",
        "LANG": "C.UTF-8",
        "PYTHONPATH": "/kinds",
        "NURSERY_OF": "/data",
        "NURSERY_RUN": "task~1:7",
        "PGPASSWORD": "s",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HOME": "/root",
        "PATH": "/usr/bin",
        "NOTIFY_SOCKET": "/n",
        "JAVA_TOOL_OPTIONS": "-javaagent:x",
        "JDK_JAVA_OPTIONS": "-Da=b",
        "LD_PRELOAD": "/x.so",
        "SPARK_CONF_DIR": "/c",
        "PYSPARK_GATEWAY_SECRET": "s",
        "PYTHONSTARTUP": "/x.py",
        "BASH_ENV": "/x",
        "HADOOP_CONF_DIR": "/c",
    }
    java = Java(Path("/java"), 17, True)
    found = driver_environment(given, java, Path("/spark"), tmp_path, {"SPARK_LOCAL_IP": "127.0.0.1"}, local=True)
    kept = {"PYSPARK_PYTHON", "LANG", "PYTHONPATH", "NURSERY_OF", "NURSERY_RUN"}
    assert {name: found[name] for name in kept} == {name: given[name] for name in kept}
    made = {"HOME", "PATH", "JAVA_HOME", "SPARK_HOME", "TMPDIR", "SPARK_LOCAL_DIRS", "PYTHONHASHSEED"}
    assert set(found) == kept | made | {"SPARK_CONNECT_MODE", "SPARK_LOCAL_IP"}
    assert (found["HOME"], found["PATH"]) == (str(tmp_path), f"{tmp_path}/bin")


def test_a_cluster_is_reached_as_its_operator_says_and_gets_no_other_variable(tmp_path: Path) -> None:
    given = {
        "PYSPARK_PYTHON": "python3",
        "SPARK_CONF_DIR": "/conf",
        "HOME": "/home/rota",
        "PGPASSWORD": "s",
        "PATH": "/x",
    }
    found = driver_environment(given, Java(Path("/java"), 17, True), Path("/spark"), tmp_path, {}, local=False)
    assert (found["SPARK_CONF_DIR"], found["HOME"], "PGPASSWORD" in found) == ("/conf", "/home/rota", False)


def test_a_python_that_is_named_without_its_folder_is_found(tmp_path: Path) -> None:
    python = tmp_path / "own" / "python-of-ours"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    given = {"PYSPARK_PYTHON": python.name, "PATH": f"/nowhere:{python.parent}:/usr/bin"}
    found = driver_environment(given, Java(Path("/java"), 17, True), Path("/spark"), tmp_path, {}, local=True)
    assert found["PATH"] == f"{tmp_path}/bin:{python.parent}"


def test_python_processes_find_the_nodes_credentials_of_stores_and_no_others() -> None:
    stores = {"AWS_ACCESS_KEY_ID": "k", "GOOGLE_APPLICATION_CREDENTIALS": "/f", "SSL_CERT_FILE": "/c", "no_proxy": "*"}
    assert python_environment(stores | {"PGPASSWORD": "s", "LD_PRELOAD": "/x", "PYTHONSTARTUP": "/x"}) == stores


def test_the_jvm_finds_two_programs_and_no_shell(tmp_path: Path) -> None:
    for _ in range(2):
        link_programs({}, tmp_path)
    assert sorted(path.name for path in programs_folder(tmp_path).iterdir()) == ["chmod", "rm"]
    environ = {"PATH": str(programs_folder(tmp_path))}
    (tmp_path / "file").touch(mode=0o644)
    subprocess.run(["chmod", "600", tmp_path / "file"], env=environ, check=True)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        subprocess.run(["sh", "-c", "true"], env=environ, check=False)


def test_a_jvm_that_ends_at_once_is_said_to_with_its_status(tmp_path: Path) -> None:
    for script, says in {
        "exit 0": "ended with status 0 before it was ready",
        "echo 'Error occurred during initialization of VM' >&2; exit 3": "ended with status 3 before it was",
        "kill -KILL $$": "ended with signal SIGKILL before it was ready: if the machine is short of memory",
    }.items():
        with pytest.raises(JvmNotStarted, match=says):
            start_jvm([str(_script(tmp_path, script))], {}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bin"}, "the file of the connection is gone"


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(JvmNotStarted, match=f"could not be started: {tmp_path}/none: No such file"):
        start_jvm([f"{tmp_path}/none"], {}, tmp_path)
    program = _script(tmp_path, "")
    program.chmod(0o644)
    with pytest.raises(JvmNotStarted, match="Permission denied"):
        start_jvm([str(program)], {}, tmp_path)


def test_what_the_jvm_says_goes_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JvmNotStarted):
        start_jvm([str(_script(tmp_path, "echo one; echo two >&2; exit 1"))], {}, tmp_path)
    assert capfd.readouterr() == ("one\n", "two\n")


def test_the_jvm_sees_no_open_file_of_its_worker_dumps_no_memory_and_outlives_an_interrupt(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        script = f"ls -l /proc/self/fd > {tmp_path}/fds; ulimit -c > {tmp_path}/core; kill -INT $$; exit 9"
        with pytest.raises(JvmNotStarted, match="status 9"):
            start_jvm([str(_script(tmp_path, script))], {"PATH": os.defpath}, tmp_path)
    assert "secret" not in (tmp_path / "fds").read_text()
    assert (tmp_path / "core").read_text() == "0\n"


def test_a_launcher_that_refuses_is_quoted(tmp_path: Path) -> None:
    _script(tmp_path, "echo 'Exception in thread main: spark-defaults.conf' >&2; exit 1")
    with pytest.raises(JvmNotStarted, match=r"gave no command for a driver .status 1.: Exception in thread"):
        launcher_command(Java(tmp_path, 17, True), Path("/spark"), CONFIGURATION, [], {})
    _script(tmp_path, "echo usage")
    with pytest.raises(JvmNotStarted, match=r"gave no command for a driver .status 0.: usage"):
        launcher_command(Java(tmp_path, 17, True), Path("/spark"), CONFIGURATION, [], {})
