r"""A crontab as tasks of Rota. Pure.

The format is that of crontab(5) in Debian's cron: five fields or a name such as `@daily`, then the command. A line
`NAME=VALUE` applies to the lines after it. `%` in a command ends the command and begins its standard input; `\%` stands
for `%`. The crontabs of a system (/etc/crontab, /etc/cron.d) name a user before the command.

A task's name depends only on its own line. So if lines are added, moved or removed, and the crontab is imported again,
the tasks of the other lines stay as they are.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, Final

from tasks.definition.cron import NAMED, check_cron

_SETTING: Final = re.compile(r"""^([A-Za-z_][A-Za-z0-9_]*|"[^"]+"|'[^']+')\s*=\s*(.*)$""")
_INPUT: Final = re.compile(r"(?<!\\)%")
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WRAPPERS: Final = frozenset(
    "sudo nice ionice env exec flock timeout cd sh bash test [ . source command if then else time ! chronic".split()
)
_ALONE: Final = frozenset({"cd", ".", "source", "command", "test", "["})
"""The wrappers after which no program follows in the same part of the command."""

_LINE_OF_A_SYSTEM: Final = re.compile(r"(?:root|www-data|nobody|daemon|postgres|mysql)\s+[^-\s=|&;<>]")
"""Matches a command that begins with a user's name, as in the crontab of a system."""

_WITH_VALUE: Final = frozenset({"-u", "-g", "-n", "-c", "-k"})
"""The options of wrappers that take a value: a user, a group, a number."""

NAME_CHARS_MAX: Final = 100
"""At most this much of a program's name goes into a task's name."""

DIGEST_BYTES: Final = 3
"""The length of the line's digest in a task's name. With two bytes, lines of a large file would collide."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A crontab's tasks, and notes on lines that are left out or have another meaning in Rota: (line number, note)."""

    tasks: list[dict[str, Any]]
    notes: list[tuple[int, str]]


@dataclass(slots=True)
class _Settings:
    shell: str = "/bin/sh"
    timezone: str = ""
    home: str | None = None
    env: dict[str, str] = field(default_factory=dict)


def tasks_of_crontab(
    text: str, *, timezone: str, system: bool = False, node: str | None = None, run_as: Collection[str] = ()
) -> Imported:
    r"""Return the tasks of a crontab.

    `timezone` is the time zone of the crontab's machine (a `CRON_TZ` line prevails); `system`: the lines name a user;
    `node`: the member that the tasks are bound to, None for any; `run_as`: the users that members allow (ROTA_RUN_AS).
    The task of any other user is disabled, and a note says so.

    >>> [task] = tasks_of_crontab("MAILTO=root\n5 4 * * 1-5 /opt/report.sh --all", timezone="UTC").tasks
    >>> task["name"], task["schedule"]["cron"], task["params"]["argv"]
    ('report-c430ef', '5 4 * * 1-5', ['/bin/sh', '-c', '/opt/report.sh --all'])
    """
    tasks: list[dict[str, Any]] = []
    notes: list[tuple[int, str]] = []
    settings = _Settings(timezone=timezone)
    names: set[str] = set()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if (setting := _SETTING.match(line)) is not None:
            notes += [(number, note) for note in _set(settings, setting[1].strip("\"'"), _unquoted(setting[2]))]
            continue
        try:
            cron, user, command = _fields(line, system)
            check_cron(cron, settings.timezone)
            argv = _command(command)
        except ValueError as error:
            notes.append((number, f"left out: {error}"))
            continue
        task = _task(_name(cron, user, argv, names), cron, settings, argv, node)
        if user is not None:
            task["run_as"] = user
            if user not in run_as:
                task["enabled"] = False
                notes.append((number, _not_allowed(user, run_as)))
        tasks.append(task)
    return Imported(tasks, notes)


def _not_allowed(user: str, run_as: Collection[str]) -> str:
    named = f"names {', '.join(run_as)}" if run_as else "is not given"
    return (
        f"disabled: it runs as {user}, and ROTA_RUN_AS {named}. Add {user} to ROTA_RUN_AS of the members that may run "
        f"it, then import again with --run-as, or set `enabled: true`"
    )


def _set(settings: _Settings, name: str, value: str) -> Iterator[str]:
    if name == "SHELL":
        settings.shell = value
    elif name == "CRON_TZ":
        settings.timezone = value
    elif name == "TZ":
        settings.env = {**settings.env, name: value}
        yield "TZ is for the commands only, as under cron; CRON_TZ or --timezone is for the times"
    elif name == "HOME":
        settings.home = value
        settings.env = {**settings.env, name: value}
    elif name == "MAILTO":
        yield "MAILTO is left out: the output is in each run's log (rota log)"
    elif name not in ("LOGNAME", "USER", "MAILFROM", "RANDOM_DELAY"):
        settings.env = {**settings.env, name: value}
    else:
        yield f"{name} is left out: it has no meaning for a task"


def _fields(line: str, system: bool) -> tuple[str, str | None, str]:
    """Split a line into the schedule, the user (None: not named) and the command. Raises `ValueError`."""
    times = 1 if line.startswith("@") else 5
    words = line.split(None, times + system)
    if len(words) <= times + system:
        raise ValueError(
            "it has too few fields" + (" (a system's crontab names a user before the command)" if system else "")
        )
    cron = " ".join(words[:times])
    if cron == "@reboot":
        raise ValueError("@reboot has no meaning in a cluster; a service of the machine may start it")
    if times == 1 and cron not in NAMED:
        raise ValueError(f"{cron} is not a name that cron knows")
    user, command = words[times] if system else None, words[-1]
    if user is not None and "/" in user:
        raise ValueError(
            f"{user} is not a user: is it the crontab of a user, which names none? Then leave --system out"
        )
    if user is not None and not _is_user(user):
        raise ValueError(f"{user} is not the name of a user that a task can run as")
    if not system and _LINE_OF_A_SYSTEM.match(command):
        raise ValueError(
            f"its command begins with {command.split()[0]}, which is a user's name: for the crontab of a system, give "
            "--system"
        )
    return cron, user, command


def _is_user(name: str) -> bool:
    # Imported here, because the models take as long to import as everything else that a command needs.
    from tasks.definition.spec import USER_PATTERN

    return re.fullmatch(USER_PATTERN, name) is not None


def _command(text: str) -> str:
    """Return the command, with escaped `%` restored. Raises `ValueError` if the line gives it a standard input."""
    if _INPUT.search(text) is not None:
        raise ValueError(
            "a % in its command begins a standard input, which tasks do not have: write a script, or pipe the input in "
            "(a literal % is written \\%)"
        )
    return text.replace("\\%", "%").strip()


def _task(name: str, cron: str, settings: _Settings, command: str, node: str | None) -> dict[str, Any]:
    params: dict[str, Any] = {"argv": [settings.shell, "-c", command]}
    if settings.env:
        params["env"] = dict(settings.env)
    if settings.home is not None:
        params["cwd"] = settings.home
    task: dict[str, Any] = {
        "name": name,
        "kind": "command",
        "params": params,
        "schedule": {"cron": cron, "timezone": settings.timezone},
        # cron starts a command only once, even if it fails.
        "retry": {"attempts": 1},
    }
    return task | ({} if node is None else {"group": {"node": node}})


def _name(cron: str, user: str | None, command: str, taken: set[str]) -> str:
    """Name a task by its command's program and a digest of the line, with a number if an equal line has this name.

    >>> names = set()
    >>> [_name("5 4 * * *", None, "cd /srv && sudo nice -n 5 /srv/bin/backup.sh", names) for _ in range(2)]
    ['backup-707288', 'backup-707288-2']
    """
    program = next(_programs(command), "task")
    stem = _NOT_A_NAME.sub("-", PurePosixPath(program).stem).strip("._-")[:NAME_CHARS_MAX] or "task"
    line = "\n".join((cron, user or "", command)).encode(errors="surrogateescape")
    base = f"{stem}-{blake2b(line, digest_size=DIGEST_BYTES).hexdigest()}"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name


def _programs(command: str) -> Iterator[str]:
    """Yield the words that may be the program, most likely first. Skips wrappers such as `sudo`, and their options."""
    for part in re.split(r"&&|;|\|\||\|", command):
        words = [cleared for word in part.split() if (cleared := word.strip("(){}\"'"))]
        while words and (
            _program(words[0]) in _WRAPPERS or "=" in words[0] or words[0].startswith("-") or words[0].isdigit()
        ):
            skipped = _program(words.pop(0))
            if skipped in _ALONE:
                words.clear()
            elif skipped == "flock":
                words = [word for word in words if not word.startswith("-")][1:]  # skip the lock file
            elif skipped in _WITH_VALUE and words and "/" not in words[0]:
                words.pop(0)
        if words:
            yield words[0]


def _program(word: str) -> str:
    return PurePosixPath(word).name or word  # the name of `.` is empty


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value.strip()
