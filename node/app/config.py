"""What a node is told by its environment: ROTA_* turned into one frozen value (DESIGN.md, section 10).

A wrong setting is a `BadConfig` whose text says which variable, what is wrong and what would be right;
all that is wrong is said at once.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from node.app.data_dir import remembers
from node.app.task_access import own_of, parse_folder, parse_roots
from node.state.entries import Seed
from node.storage.room import Bounds
from tasks.access import EVERYTHING, NOTHING, Access, parse_hosts
from tasks.command_ctx import VARIABLES
from tasks.kinds import installed, settings_asked_for
from tasks.secret import NOBODYS, NodesOwn
from tasks.spec import NAME_PATTERN, NODE_LABEL

SHORT_SECRET: Final = 16
"""A secret or a token of fewer characters is refused where others can reach the node. On loopback it is warned about.

16 hexadecimal digits drawn at random are 64 bits: more than anybody can try, even who has heard what was made with them
and needs 50 ms of a core for each guess (`node.identity.member_key`). Fewer characters are a word, or a word with a
number."""

_NAME = re.compile(NAME_PATTERN)
_T = TypeVar("_T")
_NO_SEEDS: Final[tuple[Seed, ...]] = ()
_BOUNDS: Final = Bounds()


class BadConfig(Exception):
    """The environment does not make a node. `problems` holds one sentence for each thing to mend."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class Config:
    """A node's settings. `members` may be empty where it is to join a running cluster at `join_url`, and where its
    data folder knows them. `kind_settings` are the ROTA_* variables that the node itself does not use: kinds may ask
    for them.
    """

    node: str
    members: tuple[Seed, ...]
    join_url: str | None
    data: Path
    secret: str
    token: str | None
    labels: tuple[tuple[str, str], ...]
    capacity: int
    max_runs: int
    bind: str
    heartbeat_port: int
    secrets_dir: Path
    env_allow: tuple[str, ...]
    allow_command: bool
    hosts: tuple[str, ...]
    bounds: Bounds = _BOUNDS
    metrics_tasks: int = 1000
    access: Access = NOTHING
    own: NodesOwn = NOBODYS
    umask: int = 0o022
    auto_join: bool = False
    kind_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def me(self) -> Seed | None:
        """The node's own entry in `members`."""
        return next((seed for seed in self.members if seed.id == self.node), None)


def load(environ: Mapping[str, str]) -> Config:
    """The configuration in `environ`. Raises `BadConfig`."""
    reader = _Reader(environ)
    node = reader.text("ROTA_NODE") or ""
    if not node:
        reader.problem("ROTA_NODE is not set: give this node an id, for example ROTA_NODE=node-1")
    elif not _NAME.match(node):
        reader.problem(f"ROTA_NODE={node!r} is no id: letters, digits, '.', '_' and '-', 128 at most")
    members: tuple[Seed, ...] = reader.parsed("ROTA_MEMBERS", parse_members, _NO_SEEDS)
    join_url = reader.text("ROTA_JOIN")
    data = Path(reader.text("ROTA_DATA") or f".rota/{node}")
    if not members and not join_url and "ROTA_MEMBERS" not in reader.failed and not remembers(data):
        reader.problem(
            "neither ROTA_MEMBERS nor ROTA_JOIN is set: name the members of the first start "
            "(ROTA_MEMBERS=node-1=host:7001:8101,...), or a running cluster to join (ROTA_JOIN=http://host:8101)"
        )
    if members and node and not any(seed.id == node for seed in members):
        reader.problem(
            f"ROTA_MEMBERS does not hold this node: ROTA_NODE is {node!r}, "
            f"the members are {', '.join(seed.id for seed in members)}; the list must be the same on every member"
        )
    bind = reader.text("ROTA_BIND") or "127.0.0.1"
    secret, token = reader.secret("ROTA_SECRET") or "", reader.secret("ROTA_TOKEN")
    secrets_dir = Path(reader.text("ROTA_SECRETS_DIR") or "/run/secrets")
    own = own_of(map(reader.text, ("ROTA_SECRET_FILE", "ROTA_TOKEN_FILE")), data, (secret, token))
    allow_command = reader.parsed("ROTA_ALLOW_COMMAND", _switch, False)
    config = Config(
        node=node,
        members=members,
        join_url=join_url,
        data=data,
        secret=secret,
        token=token,
        labels=reader.parsed("ROTA_LABELS", parse_labels, ()),
        capacity=reader.parsed("ROTA_CAPACITY", _integer(1, 1_000_000), 1),
        max_runs=reader.parsed("ROTA_MAX_RUNS", _integer(1, 10_000), 4 * (os.cpu_count() or 1)),
        bind=bind,
        heartbeat_port=reader.parsed("ROTA_HEARTBEAT_PORT", _integer(0, 65_535), 0),
        secrets_dir=secrets_dir,
        env_allow=reader.parsed("ROTA_ENV_ALLOW", _allowed, ()),
        allow_command=allow_command,
        hosts=reader.parsed("ROTA_HOSTS", _words, ()),
        bounds=_bounds(reader),
        metrics_tasks=reader.parsed("ROTA_METRICS_TASKS", _integer(0, 1_000_000), 1000),
        access=_access(reader, node, allow_command, (*own.files, own.data, str(secrets_dir.absolute()))),
        own=own,
        auto_join=reader.parsed("ROTA_AUTO_JOIN", _switch, False),
        kind_settings={name: environ[name].strip() for name in _not_the_nodes(environ) if environ[name].strip()},
    )
    if not config.secret and "ROTA_SECRET" not in reader.failed:
        reader.problem(
            "ROTA_SECRET (or ROTA_SECRET_FILE) is not set: members authenticate one another with it, and an open "
            "Raft port would let anyone who reaches it run code here; make one with: openssl rand -hex 32"
        )
    if any(name == NODE_LABEL and value != node for name, value in config.labels):
        reader.problem(
            f"ROTA_LABELS gives the label 'node': every member bears it with its own id ({node!r} here), by which "
            "tasks are bound to it; give your label another name"
        )
    if not is_loopback(bind) and not config.token and "ROTA_TOKEN" not in reader.failed:
        reader.problem(
            f"ROTA_BIND={bind} listens beyond this machine, and ROTA_TOKEN (or ROTA_TOKEN_FILE) is not set: "
            "anyone could register tasks; set a token, or bind to 127.0.0.1"
        )
    if not is_loopback(bind):
        for name, value in (("ROTA_SECRET", config.secret), ("ROTA_TOKEN", config.token)):
            if value and len(value) < SHORT_SECRET:
                reader.problem(
                    f"{name} is too short for ROTA_BIND={bind}, which others can reach: {len(value)} characters, and "
                    f"fewer than {SHORT_SECRET} can be guessed; make one with: openssl rand -hex 32"
                )
    if reader.problems:
        raise BadConfig(reader.problems)
    return config


def _access(reader: "_Reader", node: str, allow_command: bool, own: tuple[str, ...]) -> Access:
    """What tasks here may reach: what the settings name. Those that are not set allow nothing, unless commands are
    allowed, which reach all of it anyway.
    """
    unset = EVERYTHING if allow_command else NOTHING
    return Access(
        node,
        reader.parsed("ROTA_SOURCE_ROOTS", parse_roots, unset.source_roots),
        reader.parsed("ROTA_DESTINATION_ROOTS", parse_roots, unset.destination_roots),
        reader.parsed("ROTA_SOURCE_HOSTS", parse_hosts, unset.source_hosts),
        reader.parsed("ROTA_DESTINATION_HOSTS", parse_hosts, unset.destination_hosts),
        own,
        reader.parsed("ROTA_POSTGRES_BIN", parse_folder, None),
    )


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """The ROTA_* variables that neither the node nor an installed kind uses: misspelled, most likely.

    >>> unknown_settings({"ROTA_NODE": "a", "ROTA_MEMBRES": ""})
    ['ROTA_MEMBRES']
    """
    unknown = _not_the_nodes(environ)
    return sorted(unknown - settings_asked_for(installed().values())) if unknown else []


def is_the_nodes(setting: str) -> bool:
    """Whether a ROTA_* variable is one of the node's own settings, which no kind is given."""
    return setting.removeprefix("ROTA_") in _KNOWN


def _not_the_nodes(environ: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for name in environ if name.startswith("ROTA_") and not is_the_nodes(name))


def is_loopback(host: str) -> bool:
    """Whether a bind address stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_members(text: str) -> tuple[Seed, ...]:
    """`id=host:raftport:httpport,...` as seeds, in the order given, which is that of the slots.

    Raises `ValueError`.

    >>> parse_members("a=127.0.0.1:7001:8101")
    (Seed(id='a', host='127.0.0.1', raft_port=7001, http_port=8101),)
    """
    seeds: list[Seed] = []
    for part in _words(text):
        name, equals, address = part.partition("=")
        host, _, ports = address.rpartition(":")
        host, _, raft = host.rpartition(":")
        if not (equals and _NAME.match(name) and host and raft.isdigit() and ports.isdigit()):
            raise ValueError(f"{part!r} is not id=host:raftport:httpport")
        if not all(0 < int(port) < 65_536 for port in (raft, ports)):
            raise ValueError(f"{part!r} names a port that is not between 1 and 65535")
        seeds.append(Seed(name, host, int(raft), int(ports)))
    if len({seed.id for seed in seeds}) != len(seeds):
        raise ValueError("one id stands there twice")
    if len({(seed.host, seed.raft_port) for seed in seeds}) != len(seeds):
        raise ValueError("two members have one Raft address")
    return tuple(seeds)


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """`k=v,...` as sorted pairs. Raises `ValueError`.

    >>> parse_labels("zone=b, disk=ssd")
    (('disk', 'ssd'), ('zone', 'b'))
    """
    pairs = [part.partition("=") for part in _words(text)]
    if any(not name or not equals for name, equals, _ in pairs):
        raise ValueError("labels are name=value, separated by commas")
    return tuple(sorted((name.strip(), value.strip()) for name, _, value in pairs))


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _allowed(text: str) -> tuple[str, ...]:
    names = _words(text)
    if any(name.upper().startswith("ROTA_") for name in names):
        raise ValueError("ROTA_* variables are the node's own and are never given to tasks")
    return names


def _bounds(reader: "_Reader") -> Bounds:
    """What the node's disk is used for; of a small disk it is less (`Bounds.on`)."""
    size = _integer(0, 2**62)
    return Bounds(
        reserve_bytes=reader.parsed("ROTA_DISK_RESERVE_BYTES", size, _BOUNDS.reserve_bytes),
        scratch_bytes=reader.parsed("ROTA_SCRATCH_BYTES", size, _BOUNDS.scratch_bytes),
        log_bytes=reader.parsed("ROTA_LOG_BYTES", size, _BOUNDS.log_bytes),
        logs_bytes=reader.parsed("ROTA_LOGS_BYTES", size, _BOUNDS.logs_bytes),
        history_bytes=reader.parsed("ROTA_HISTORY_BYTES", size, _BOUNDS.history_bytes),
    )


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdigit() or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def _switch(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be 1 or 0")


_KNOWN: Final = frozenset(
    "NODE MEMBERS JOIN AUTO_JOIN DATA LABELS CAPACITY MAX_RUNS SECRET SECRET_FILE TOKEN TOKEN_FILE SECRETS_DIR "
    "ENV_ALLOW ALLOW_COMMAND BIND HEARTBEAT_PORT HOSTS METRICS_TASKS URL SOURCE_ROOTS DESTINATION_ROOTS "
    "SOURCE_HOSTS DESTINATION_HOSTS POSTGRES_BIN DISK_RESERVE_BYTES SCRATCH_BYTES LOG_BYTES LOGS_BYTES "
    "HISTORY_BYTES".split()
) | {name.removeprefix("ROTA_") for name in VARIABLES}
"""Those of a command are there where it starts a node."""


class _Reader:
    """Takes variables out of an environment and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []
        self.failed: set[str] = set()

    def problem(self, sentence: str) -> None:
        self.problems.append(sentence)

    def text(self, name: str) -> str | None:
        return self._environ.get(name, "").strip() or None

    def parsed(self, name: str, parse: Callable[[str], _T], default: _T) -> _T:
        text = self.text(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.failed.add(name)
            self.problem(f"{name}={text!r}: {error}")
            return default

    def secret(self, name: str) -> str | None:
        value, path = self.text(name), self.text(f"{name}_FILE")
        if value and path:
            self.failed.add(name)
            self.problem(f"{name} and {name}_FILE are both set: keep one")
        source = name
        try:
            if path and not value:
                source = f"{name}_FILE={path}"
                value = Path(path).read_text(encoding="utf-8").strip() or None
            (value or "").encode()  # a variable, too, is bytes and perhaps no text
            return value
        except OSError as error:
            self.problem(f"{source}: {error.strerror}")
        except UnicodeError:
            self.problem(f"{source}: no text in UTF-8, raw random bytes perhaps; make one with: openssl rand -hex 32")
        self.failed.add(name)
        return None
