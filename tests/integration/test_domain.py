"""Domains that somebody works against who may change names where tasks write, or who has made other paths by mounts.

A domain is made as a supervisor makes it, and entered by a process of its own, which says what it could open.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from node.execution import domain
from node.execution.domain import Commands, Domain, MadeAhead
from node.execution.linux import gain_no_rights
from node.execution.nodes_own import with_other_names
from tasks import landlock
from tasks.access import Access
from tasks.file_guard import FileGuard, path_of
from tasks.needs import Needs
from tasks.reach import Reach
from testkit.execution.own_node import ROOT
from testkit.faults import mounts

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock"),
]

UMASK = 0o022
"""Of the node; this process has another one."""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def made(needs: Needs, access: Access, scratch: Path, umask: int | None = UMASK) -> Domain:
    return domain.of_attempt(needs, access, "task", scratch, umask, landlock.abi(), {})


def writing(path: Path, **more: Any) -> Needs:
    return Needs(reaches=(Reach("to", "destination", str(path), str(path), **more),))


def inside(given: Domain, look: Callable[[], Any]) -> Any:
    """What `look` finds in a process that has entered the domain."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            gain_no_rights()
            given.ruleset.enter()
            os.write(write, json.dumps(look()).encode())
        except BaseException as error:
            os.write(write, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        found = json.loads(said.read())
    os.waitpid(pid, 0)
    return found


def opened(*paths: Path) -> dict[str, str]:
    """What came of opening each: its content or names, or the error's name."""
    found = {}
    for path in paths:
        try:
            names = sorted(each.name for each in path.iterdir()) if path.is_dir() else [path.read_text()]
            found[path.name] = ",".join(names)
        except OSError as error:
            found[path.name] = type(error).__name__
    return found


# -- folders that are made


def test_a_folder_that_is_missing_is_made_by_the_nodes_umask_and_nothing_else(tmp_path: Path, scratch: Path) -> None:
    access = Access("node-1", (), (str(tmp_path / "not/there/root"),))
    before = os.umask(0o077)
    try:
        made(writing(tmp_path / "not/there/root/a/b"), access, scratch)
        made(writing(tmp_path / "not/there/root/a/mine", private=True), access, scratch)
    finally:
        assert os.umask(before) == 0o077
    modes = {name: (tmp_path / "not/there/root" / name).stat().st_mode & 0o777 for name in ("", "a", "a/b", "a/mine")}
    assert modes == {"": 0o755, "a": 0o755, "a/b": 0o755, "a/mine": 0o700}
    made(writing(tmp_path / "not/there/root/c"), access, scratch, umask=None)
    assert not (tmp_path / "not/there/root/c").exists(), "the attempt's own user makes it"


@pytest.mark.parametrize("swapped", ["srv/a", "srv/a/b"])
@pytest.mark.parametrize("there", ["srv/a/b", "srv/a/b/c"])
def test_a_folder_that_becomes_a_link_once_it_is_checked_leads_nowhere(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, swapped: str, there: str
) -> None:
    """The moment after the check is found by hand here; elsewhere it is found by trying."""
    (tmp_path / there).mkdir(parents=True)
    (tmp_path / "outside/b/c").mkdir(parents=True)
    access = Access("node-1", (), (str(tmp_path / "srv"),))
    checks = FileGuard.resolve

    def resolve(guard: FileGuard, path: str | Path) -> Path:
        real = checks(guard, path)
        one = tmp_path / swapped
        if not one.is_symlink() and path != scratch:
            one.rename(tmp_path / "srv/aside")
            one.symlink_to(tmp_path / "outside")
        return real

    for wanted in ("srv/a/b/c/new/newer", "srv/a/b/c"):
        with monkeypatch.context() as patched:
            patched.setattr(FileGuard, "resolve", resolve)
            given = made(writing(tmp_path / wanted), access, scratch)
        assert [str(each.relative_to(tmp_path)) for each in (tmp_path / "outside").rglob("*")] == [
            "outside/b",
            "outside/b/c",
        ]
        assert inside(given, lambda: opened(tmp_path / "outside")) == {"outside": "PermissionError"}
        assert given.remarks
        (tmp_path / swapped).unlink()
        (tmp_path / "srv/aside").rename(tmp_path / swapped)


@contextmanager
def swapping(path: Path, link: Path) -> Iterator[None]:
    """A process that exchanges a folder and a link, as fast as it can."""
    pid = os.fork()
    if pid == 0:
        names, libc = (os.fsencode(path), os.fsencode(link)), ctypes.CDLL(None)
        while libc.renameat2(-100, names[0], -100, names[1], 2) == 0:
            pass
        os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "it went on until now"


def test_no_folder_is_made_outside_of_the_roots_while_names_change_all_the_time(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "srv/a").mkdir(parents=True)
    (tmp_path / "srv/link").symlink_to(tmp_path / "outside")
    access = Access("node-1", (), (str(tmp_path / "srv"),))
    with swapping(tmp_path / "srv/a", tmp_path / "srv/link"):
        for number in range(60):
            made(writing(tmp_path / f"srv/a/{number}"), access, scratch).ruleset.close()
            assert not any((tmp_path / "outside").iterdir()), number


# -- what is above a destination


def test_the_folder_above_a_destination_cannot_be_listed_nor_what_is_beside_it(tmp_path: Path, scratch: Path) -> None:
    for name in ("srv/mine", "srv/others/orders-of-acme"):
        (tmp_path / name).mkdir(parents=True)
    access = Access("node-1", (), (str(tmp_path / "srv"),))
    above = (tmp_path, tmp_path / "srv", tmp_path / "srv/others")
    for path in (tmp_path / "srv/mine", tmp_path / "srv"):
        given = made(writing(path), access, scratch)
        found = inside(given, partial(opened, *(each for each in above if not each.is_relative_to(path))))
        assert set(found.values()) == {"PermissionError"}, found


def test_the_name_of_a_destination_is_on_the_disk_before_an_attempt_begins(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "srv/mine").mkdir(parents=True)
    synced: list[str] = []
    does = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(path_of(descriptor))
        does(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    access = Access("node-1", (), (str(tmp_path / "srv"),))
    for name, names in {"srv/mine": ["srv"], "srv": [""], "srv/new/newer": ["srv", "srv/new", "srv/new"]}.items():
        synced.clear()
        made(writing(tmp_path / name), access, scratch)
        assert synced == [str(tmp_path / each) for each in names], name


@pytest.mark.parametrize("use", ["source", "destination"])
def test_a_file_that_is_a_root_does_not_open_its_folder(tmp_path: Path, scratch: Path, use: Any) -> None:
    for name in ("a.sqlite", "b.sqlite"):
        (tmp_path / name).write_text(name)
    root = (str(tmp_path / "a.sqlite"),)
    access = Access("node-1", root, root)
    needs = Needs(reaches=(Reach("db", use, root[0], root[0], beside=True),))
    given = made(needs, access, scratch)
    found = inside(given, lambda: opened(tmp_path / "a.sqlite", tmp_path / "b.sqlite", tmp_path))
    assert found == {"a.sqlite": "a.sqlite", "b.sqlite": "PermissionError", tmp_path.name: "PermissionError"}
    assert "ROTA_" in given.remarks[0]


# -- other paths to the node's own

in_a_namespace = pytest.mark.skipif(mounts.why_not() is not None, reason=str(mounts.why_not()))


def laid_out(folder: Path) -> Commands:
    """Something of a node's own, and something beside it: `secret` is in all that no command may open."""
    for name in ("srv/node/data/deep/er/secret", "srv/beside", "elsewhere/file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(Path(name).name)
    (folder / "elsewhere/view").mkdir()
    return Commands((f"{folder}/srv/node/data",), (str(folder),), landlock.abi())


def of_command(commands: Commands, scratch: Path) -> Domain:
    return domain.of_attempt(
        Needs(everything=True, roots=commands.roots),
        Access("node-1", own=commands.own),
        "task",
        scratch,
        UMASK,
        commands.version,
        {},
    )


def within_namespace(folder: Path) -> None:
    """In a mount namespace: what a command can open by the folder that is mounted a second time at `elsewhere/view`."""
    commands = Commands((f"{folder}/srv/node/data",), (str(folder),), landlock.abi())
    given = of_command(commands, folder / "scratch")
    files = [each for each in (folder / "elsewhere/view").rglob("*") if each.is_file()]
    seen = inside(given, lambda: [opened(each) for each in files])
    beside = inside(given, lambda: opened(folder / "srv/beside", folder / "elsewhere/file"))
    for changing in (folder, *folder.rglob("*")):
        if changing.is_dir():
            os.utime(changing, ns=(1_000_000_000, 1_000_000_000))
    ahead = MadeAhead(commands)
    taken = [ahead.take(commands) is not None]
    subprocess.run(["mount", "--bind", str(folder / "srv"), str(folder / "scratch")], check=True)
    taken.append(ahead.take(commands) is not None)
    print(json.dumps({"seen": seen, "beside": beside, "taken": taken}))


def namespaced(folder: Path, words: list[str]) -> Any:
    """What `within_namespace` prints in the namespace that is made by `words`."""
    script = f"from pathlib import Path; from {__name__} import within_namespace as w; w(Path({str(folder)!r}))"
    done = subprocess.run([*words, sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@in_a_namespace
@pytest.mark.more
@pytest.mark.parametrize("shown", ["srv", "srv/node/data", "srv/node/data/deep/er"])
@pytest.mark.parametrize("mounted", ["srv/node/data", "srv/node/data/deep"])
def test_a_second_mount_is_no_other_path_to_a_disk_of_the_nodes_own(
    tmp_path: Path, scratch: Path, mounted: str, shown: str
) -> None:
    laid_out(tmp_path)
    script = (
        f"cp -r {mounted} scratch/was && mount -t tmpfs none {mounted} && cp -r scratch/was/. {mounted} && "
        f'mount --rbind {shown} elsewhere/view && cd "$OLDPWD" && exec "$@"'
    )
    here = mounts.within(tmp_path / "scratch", tmp_path / "scratch")
    said = namespaced(tmp_path, [*here, "sh", "-c", f'cd "$0" && {script}', str(tmp_path)])
    assert {"secret": "PermissionError"} in said["seen"]
    assert {"secret": "secret"} not in said["seen"]
    assert said["beside"] == {"beside": "beside", "file": "file"}


@in_a_namespace
@pytest.mark.parametrize(
    ("shown", "refused", "given"),
    [
        (".", 1, 2),
        pytest.param("srv", 1, 1, marks=pytest.mark.more),
        ("srv/node", 1, 0),
        pytest.param("srv/node/data", 1, 0, marks=pytest.mark.more),
        ("srv/node/data/deep", 1, 0),
        pytest.param("srv/node/data/deep/er", 1, 0, marks=pytest.mark.more),
        pytest.param("elsewhere", 0, 1, marks=pytest.mark.more),
    ],
)
def test_a_second_mount_is_no_other_path_to_the_nodes_own(
    tmp_path: Path, scratch: Path, shown: str, refused: int, given: int
) -> None:
    laid_out(tmp_path)
    said = namespaced(tmp_path, mounts.within(tmp_path / shown, tmp_path / "elsewhere/view"))
    found = [next(iter(each.items())) for each in said["seen"]]
    assert [name for name, came in found if came == "PermissionError"] == ["secret"] * refused, found
    assert sum(name == came for name, came in found) == given
    assert said["beside"] == {"beside": "beside", "file": "file"}
    assert said["taken"] == [True, False], "what is mounted since may show it"


def test_a_hard_link_beside_the_nodes_own_is_left_out(tmp_path: Path, scratch: Path) -> None:
    commands = laid_out(tmp_path)
    secret = tmp_path / "srv/node/data/token"
    secret.write_text("TOPSECRET")
    for name in ("srv/link", "link", "elsewhere/link"):
        (tmp_path / name).hardlink_to(secret)
    given = of_command(commands, scratch)
    for name, came in {"srv/link": "PermissionError", "link": "PermissionError", "elsewhere/link": "TOPSECRET"}.items():
        assert inside(given, partial(opened, tmp_path / name)) == {"link": came}, name
    assert list(with_other_names(commands.own).values()) == [str(secret)]


def test_the_nodes_own_in_a_folder_that_all_programs_use_is_not_given(scratch: Path) -> None:
    with TemporaryDirectory(dir="/dev/shm") as memory:
        (Path(memory) / "secret").write_text("TOPSECRET")
        for own in (memory, f"{memory}/secret"):
            given = of_command(Commands((own,), (), landlock.abi()), scratch)
            assert inside(given, partial(opened, Path(memory, "secret"))) == {"secret": "PermissionError"}


# -- terminals


def of_terminals(other: str) -> list[str]:
    """What comes of opening another session's terminal, and of making one."""
    ways: list[Callable[[], Any]] = [lambda: os.open(other, os.O_RDWR | os.O_NOCTTY), os.openpty]
    came = []
    for way in ways:
        try:
            way()
            came.append("")
        except OSError as error:
            came.append(type(error).__name__)
    return came


@pytest.mark.skipif(not Path("/dev/pts/ptmx").exists(), reason="no terminals can be made here")
@pytest.mark.parametrize(
    ("roots", "came"),
    [((), "PermissionError"), (("/",), "PermissionError"), (("/dev",), "PermissionError"), (("/", "/dev/pts"), "")],
)
def test_a_command_opens_the_terminals_of_its_user_only_where_the_operator_says_so(
    tmp_path: Path, scratch: Path, roots: tuple[str, ...], came: str
) -> None:
    ends = os.openpty()
    try:
        commands = laid_out(tmp_path)._replace(roots=roots)
        given = of_command(commands, scratch)
        assert inside(given, partial(of_terminals, os.ttyname(ends[1]))) == [came, came]
        assert ("can open no terminal" in given.remarks[0]) == bool(came)
        programs = inside(given, partial(opened, Path("/etc/hosts"), tmp_path / "srv/node/data"))
        assert (programs["data"], programs["hosts"]) == ("PermissionError", Path("/etc/hosts").read_text())
    finally:
        for end in ends:
            os.close(end)
