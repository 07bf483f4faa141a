"""Makes the domain of an attempt: the files that the kernel lets its processes open, by its needs (`tasks.needs`).

The supervisor makes the ruleset, because it is not confined. It follows symlinks, checks each path as `FileGuard` does,
and makes missing folders. The worker adds its kind's tools, and enters the domain before the kind sees the params.

An author of tasks could replace a file between its check and its use. So such a file is opened only once: its
descriptor is checked, and then passed to Landlock.
"""

import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from node.execution.destination import opened_or_made
from node.execution.nodes_own import Own, and_at, kernels, nodes_own, paths_of, without
from tasks import landlock
from tasks.access import Access, AccessRefused, Use, is_within
from tasks.file_guard import FileGuard
from tasks.landlock import READ, READ_FOLDER, RUN, WRITE, Ruleset
from tasks.needs import Needs, Tool, Tools, credential_files
from tasks.places.mounts import MountWatch, mountinfo
from tasks.reach import Reach

_LIBRARIES: Final = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/share",
    "/usr/share",
    "/lib",
    "/lib64",
)
"""Folders of shared libraries and of data for all programs: time zones, certificates, locales."""

_ETC: Final = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives ca-certificates crypto-policies gai.conf group host.conf hosts krb5.conf krb5.conf.d ld.so.cache "
        "ld.so.conf ld.so.conf.d locale.alias localtime machine-id mime.types nsswitch.conf os-release passwd pki "
        "protocols resolv.conf services ssl/certs ssl/openssl.cnf timezone"
    ).split()
)
"""The files of /etc that libraries read. No other file there is allowed, because some contain secrets."""

_KERNEL: Final = ("/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm")
"""The kernel's files on processors and memory, which may be read. In /proc, private files of other processes stay
closed, because reading them requires the right to trace the process, which a domain takes away."""

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PTS: Final = "/dev/pts"
_TERMINALS: Final = (_PTS, "/dev/ptmx", "/dev/tty")
"""The files with which a program makes a terminal. /dev/pts also has the terminals of all the user's sessions."""
_DISKS: Final = "/dev/disk"
"""The folder of symlinks that show which file system is on which device (`tasks.disk_identity`). The devices
themselves stay closed."""
_MEMORY: Final = "/dev/shm"  # noqa: S108  an ordinary file system in memory, for all users

_PROGRAMS: Final = ("/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/opt")
"""Folders of programs and of the files that they need."""

_SYSTEMS: Final = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/sbin", "/usr", "/var/spool/cron")
"""Folders of the programs that root runs, and of the files that say what root runs, such as crontabs."""

INSTALLED_PACKAGES: Final = ("hashing", "node", "spark_tasks", "tasks")
"""The packages of Rota, which every domain allows to be read."""

_LOADERS: Final = ("/lib64/ld-linux-*.so.*", "/lib/ld-linux-*.so.*", "/lib/ld-musl-*.so.*")
"""The dynamic loaders. The kernel runs one of them to start a program with shared libraries, and Landlock checks it."""

_BESIDE: Final = landlock.WRITE & ~landlock.REFER
_RIGHTS: Final[Mapping[str, int]] = {"read": READ, "write": WRITE, "run": RUN}


@dataclass(slots=True)
class Domain:
    """A domain that is being made."""

    #: The kernel's ruleset, to which rights are added.
    ruleset: Ruleset
    #: The node's own files: they stay refused even if a folder above them is allowed.
    own: Own
    #: The mounts by which `own` was found (`tasks.places.mounts.mountinfo`).
    mounted: str
    #: Sentences for the log of an attempt that fails in this domain.
    remarks: list[str] = field(default_factory=list)
    #: When each folder that was listed had last changed, in nanoseconds since the epoch.
    looked_into: dict[str, int] = field(default_factory=dict)

    def allow(self, path: str, rights: int, but: Own | None = None) -> None:
        """Allow `rights` at `path` and below, except to the files of `but`; None: the node's own."""
        real = os.path.realpath(path)
        if (descriptor := landlock.located(real)) is not None:
            self.allow_open(descriptor, real, rights, but)

    def allow_open(self, descriptor: int, real: str, rights: int, but: Own | None = None) -> None:
        """Allow `rights` at an open file or folder with the real path `real`. Closes the descriptor."""
        try:
            for part in without(descriptor, real, but or self.own, self.looked_into):
                self.ruleset.allow(part, rights)
        finally:
            os.close(descriptor)

    def and_kernels(self, more: Iterable[str] = ()) -> Own:
        """Return the node's own files, together with the kernel's file systems and the paths `more`."""
        return and_at(self.own, (*kernels(self.mounted), *more), self.mounted)

    def allow_all(self, paths: Iterable[str], rights: int) -> None:
        """Call `allow` for each of `paths`."""
        for path in paths:
            self.allow(path, rights)


class Commands(NamedTuple):
    """The inputs for the domain of a member's commands: the node's own paths, `Needs.roots`, and Landlock's ABI."""

    own: tuple[str, ...]
    roots: tuple[str, ...]
    version: int

    def word(self) -> str:
        """Encode as text."""
        return json.dumps(self)


def commands_of(word: str) -> Commands:
    """Decode the text from `Commands.word`.

    >>> commands_of(Commands(("/a",), (), 7).word())
    Commands(own=('/a',), roots=(), version=7)
    """
    own, roots, version = json.loads(word)
    return Commands(tuple(own), tuple(roots), version)


class MadeAhead:
    """The domain of a command, made before its attempt comes, because listing its many folders takes milliseconds."""

    def __init__(self, commands: Commands) -> None:
        """Make the domain. Raises `landlock.CannotConfine`."""
        self._commands = commands
        self._make()

    def _make(self) -> None:
        self._mounts = MountWatch()
        self._begun_ns = time.time_ns()
        self._domain = _of_command(self._commands)

    def take(self, commands: Commands) -> Domain | None:
        """Return the domain for a command that begins now; None if mounts or listed folders have changed since."""
        return self._domain if commands == self._commands and self._is_current() else None

    def refresh(self) -> None:
        """Make the domain anew if it is out of date. Raises `landlock.CannotConfine`."""
        if not self._is_current():
            self._mounts.close()
            self._domain.ruleset.close()
            self._make()

    def _is_current(self) -> bool:
        # A folder's time does not show a change in the same tick of the kernel's clock as the listing.
        return not self._mounts.changed() and all(
            self._begun_ns - changed_ns >= _TICK_NS and _changed_ns(folder) == changed_ns
            for folder, changed_ns in self._domain.looked_into.items()
        )


_TICK_NS: Final = 20_000_000


def _of_command(commands: Commands) -> Domain:
    domain = _made(commands.own, commands.version, network=True)
    _allow_everything(domain, commands.roots)
    return domain


def of_attempt(
    needs: Needs,
    access: Access,
    task: str,
    scratch: Path,
    umask: int | None,
    version: int,
    environ: Mapping[str, str],
    ahead: MadeAhead | None = None,
) -> Domain:
    """Make the domain of an attempt at `task`, without its tools. Missing destinations are made, with `umask`.

    If `umask` is None, missing destinations are left to `allow_missing`. `version` is Landlock's ABI, `environ` has the
    attempt's variables. `ahead` is used unless it is out of date. Raises `landlock.CannotConfine`.
    """
    if needs.everything:
        commands = Commands(access.own, needs.roots, version)
        domain = (None if ahead is None else ahead.take(commands)) or _of_command(commands)
        domain.ruleset.allow(str(scratch), WRITE | RUN)
        return domain
    domain = _made(access.own, version, network=needs.network)
    domain.ruleset.allow(str(scratch), WRITE)
    _allow_system(domain)
    for path in credential_files(needs.own_credentials, environ):
        domain.allow(path, READ)
    if any(reach.links and reach.path is not None for reach in needs.reaches):
        _allow_roots(domain, access, "source")
    guards = {use: FileGuard(access, use) for use in {reach.use for reach in needs.reaches if reach.path is not None}}
    for reach in needs.reaches:
        if reach.path is not None:
            _allow_reach(domain, guards[reach.use], reach, task, umask)
    return domain


def allow_missing(ruleset: Ruleset, needs: Needs, access: Access, task: str, umask: int) -> list[str]:
    """Make missing destinations, and allow them, in a process that has become the attempt's user.

    The supervisor does not make them, because as root it could make a folder where the user may not. Returns the
    remarks for the log. Raises `landlock.CannotConfine`.
    """
    domain, guard = _domain(ruleset, access.own), FileGuard(access, "destination")
    for reach in needs.reaches:
        if reach.path is not None and reach.use == "destination" and not Path(_folder(reach, reach.path)).is_dir():
            _allow_reach(domain, guard, reach, task, umask)
    return domain.remarks


def of_preparation(access: Access, scratch: Path, version: int) -> Domain:
    """Make the domain of a process that is prepared before its attempt is known: it allows all roots of tasks.

    Raises `landlock.CannotConfine`.
    """
    domain = _made(access.own, version, network=True)
    domain.ruleset.allow(str(scratch), WRITE)
    _allow_system(domain)
    _allow_roots(domain, access, "source")
    _allow_roots(domain, access, "destination")
    return domain


def prepared_since(needs: Needs, access: Access, since_ns: int) -> bool:
    """Whether a process that was confined for a preparation at `since_ns` may open all paths that an attempt needs.

    A folder above the node's own files is not allowed as a whole, so the process may not open entries that were added
    to it after `since_ns` (in nanoseconds since the epoch). False also if this cannot be determined.
    """
    mounted = mountinfo()
    kept = paths_of((*access.own, *access.closed_programs, *kernels(mounted)), mounted)

    def may(reach: Reach, path: str) -> bool:
        real = os.path.realpath(_folder(reach, path))
        # A destination's parent is opened too, to sync the destination's name; not if the destination is a root.
        above = str(Path(real).parent)
        return any(
            _was_there(real, root, kept, since_ns)
            and (reach.use == "source" or real == os.path.realpath(root) or _was_there(above, root, kept, since_ns))
            for root in access.roots(reach.use)
        )

    return all(may(reach, reach.path) for reach in needs.reaches if reach.path is not None)


def _was_there(path: str, root: str, kept: Iterable[str], since_ns: int) -> bool:
    top = os.path.realpath(root)
    if not is_within(path, top):
        return False
    way = [*reversed([str(each) for each in Path(path).parents if is_within(str(each), top)]), path]
    for each in way:
        if not any(is_within(own, each) for own in kept):
            # It was allowed as a whole if it existed at `since_ns`: that is certain if its parent is unchanged since.
            return Path(each).exists() and _changed_ns(str(Path(each).parent)) < since_ns
    return False


def found_tools(names: Iterable[str], environ: Mapping[str, str], access: Access) -> list[Tool]:
    """Call these functions (`module:function`), and return the tools that they find. Raises any error of them."""
    found: list[Tool] = []
    for name in names:
        module, _, function = name.partition(":")
        find: Tools = getattr(import_module(module), function)
        found += find(environ, access)
    return found


def allow_tools(ruleset: Ruleset, tools: Iterable[Tool]) -> None:
    """Allow the tools in `ruleset`. Raises `landlock.CannotConfine`."""
    runs = False
    for tool in tools:
        ruleset.allow(tool.path, _RIGHTS[tool.use])
        runs = runs or tool.use == "run"
    if runs:
        for pattern in _LOADERS:
            for loader in Path("/").glob(pattern.removeprefix("/")):
                ruleset.allow(str(loader), RUN)


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116  paths are strings here
    except OSError:
        return 0


def _made(own: Iterable[str], version: int, *, network: bool) -> Domain:
    return _domain(Ruleset.make(version, network=network), own)


def _domain(ruleset: Ruleset, own: Iterable[str]) -> Domain:
    mounted = mountinfo()
    return Domain(ruleset, nodes_own(own, mounted), mounted)


def _allow_system(domain: Domain) -> None:
    """Allow the system's files that every program reads."""
    ruleset = domain.ruleset
    domain.allow_all((*_LIBRARIES, *_ETC, *_KERNEL), READ)
    domain.allow_all(installation(), READ)
    domain.allow_all(_DEVICES, landlock.READ_FILE | landlock.WRITE_FILE)
    ruleset.allow(_DISKS, READ_FOLDER)


def places_of(package: str) -> Iterable[str]:
    """Return the folders, or the file, of a top-level package or module, without importing it."""
    spec = find_spec(package)
    return () if spec is None else spec.submodule_search_locations or filter(None, (spec.origin,))


@cache
def installation() -> tuple[str, ...]:
    """Return the folders in which Python and Rota are installed, with symlinks resolved and without nested folders."""
    packages = (place for name in INSTALLED_PACKAGES for place in places_of(name))
    # `sys.path` has the folders of PYTHONPATH, among others.
    found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *packages, *filter(None, sys.path))}
    found -= {"/", "/usr"}
    return tuple(path for path in sorted(found) if not any(is_within(path, each) for each in found - {path}))


def runs_later() -> tuple[str, ...]:
    """Return the folders from which this node, and root if the node is root's, runs programs (`Access.programs`)."""
    packages = (place for name in INSTALLED_PACKAGES for place in places_of(name))
    found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *packages)} - {"/", "/usr"}
    return (*sorted(found), *(_SYSTEMS if os.geteuid() == 0 else ()))


def _allow_everything(domain: Domain, roots: Collection[str]) -> None:
    """Allow the user's every access, except to the node's own files; the installation may only be read and run.

    If `roots` is not empty, allow only these folders, and the files that programs run and read.
    """
    # Root without capabilities still owns the system's files, and could change a program that root runs later.
    systems = _SYSTEMS if os.geteuid() == 0 else ()
    kept = domain.and_kernels((*installation(), *systems))
    everything = landlock.WRITE | READ | RUN
    for root in roots or ("/",):
        domain.allow(root, everything, kept)
    domain.allow_all(systems if not roots or "/" in roots else (*_PROGRAMS, *_ETC), READ | RUN)
    domain.allow_all(installation(), READ | RUN)
    domain.allow_all(("/proc", "/sys"), READ)
    terminals = _TERMINALS if _PTS in roots else ()
    domain.allow_all((*_DEVICES, *terminals), landlock.READ_FILE | landlock.WRITE_FILE | landlock.IOCTL | READ_FOLDER)
    domain.allow_all((_MEMORY,), landlock.WRITE)
    domain.ruleset.allow(_DISKS, READ_FOLDER)
    hidden = sorted(path for path in domain.own.paths if Path(path).exists())
    tops = sorted({str(Path(path).parent) for path in (*hidden, *installation())})
    domain.remarks.append(
        f"this command is confined: it cannot open {', '.join(hidden)}, and can list and change the top level of "
        f"{', '.join(tops)} and of the folders above only as far as entries were there when it began. "
        + ("" if terminals else f"It can open no terminal: a member that names {_PTS} in ROTA_COMMAND_ROOTS gives it. ")
        + "A process can set only its own priority, processors and limits: put nice, ionice -c3, taskset or prlimit in "
        "front of a program, and do not use renice or -p. If a command needs more, run it on a member with "
        "ROTA_COMMAND_CONFINED=0"
    )


def _allow_roots(domain: Domain, access: Access, use: Use) -> None:
    """Allow every folder that tasks may name as a source, or as a destination (`use`)."""
    kept = domain.and_kernels(access.closed_programs if use == "destination" else ())
    for root in access.roots(use):
        domain.allow(root, READ if use == "source" else WRITE, kept)


def _folder(reach: Reach, path: str) -> str:
    return os.path.dirname(path) if reach.beside else path  # noqa: PTH120  paths are strings here


def _allow_reach(domain: Domain, guard: FileGuard, reach: Reach, task: str, umask: int | None) -> None:
    """Allow one path of the params. Leave out a path that the node refuses, because the kind reports that itself."""
    assert reach.path is not None
    folder = _folder(reach, reach.path)
    rights = _BESIDE if reach.beside else READ if reach.use == "source" else WRITE
    try:
        if _refuses(guard, reach.path):
            return
        if reach.use == "destination" and umask is not None:
            descriptor, real = opened_or_made(guard, folder, 0o077 if reach.private else umask)
        else:
            descriptor, real = guard.locate(folder)
    except AccessRefused as refused:
        domain.remarks.append(str(refused))
        if reach.beside:
            _allow_located(domain, guard, reach.path, rights)  # the file itself is a root
        return
    except OSError as error:
        if umask is not None and (reach.use == "destination" or error.errno not in landlock.UNSEEN):
            domain.remarks.append(f"{folder} cannot be made or opened: {error.strerror}")
        return
    domain.allow_open(descriptor, str(real), rights)
    for name in reach.inner:
        link = Path(folder, name.replace("*", task))
        if link.is_symlink():
            _allow_located(domain, guard, link, rights)


def _refuses(guard: FileGuard, path: str) -> bool:
    try:
        guard.resolve(path)
    except AccessRefused:
        return True
    return False


def _allow_located(domain: Domain, guard: FileGuard, path: str | Path, rights: int) -> None:
    try:
        descriptor, real = guard.locate(path)
    except (AccessRefused, OSError):
        return  # refused or missing: the kind finds that out and reports it
    domain.allow_open(descriptor, str(real), rights)
