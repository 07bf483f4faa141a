"""A node's configuration: the ROTA_* variables of its environment as one frozen value.

The table `node.app.settings` has each variable's meaning, default and parser. All errors are reported at once.
"""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node.app.data_dir import knows_members
from node.app.setting_values import is_name
from node.app.settings_reader import SettingsReader
from node.app.task_access import own_of
from node.execution import limits
from node.execution.limits import Amounts
from node.execution.machine import memory_bytes
from node.state.entries import Seed
from node.storage.room import Bounds
from tasks.access import EVERYTHING, NOTHING, Access
from tasks.definition.spec import NODE_LABEL
from tasks.secret import NodesOwn

SHORT_SECRET: Final = 16
"""A secret or a token with fewer characters is refused where others can reach the node; on loopback, a warning is
logged.

16 random hexadecimal digits are 64 bits. An attacker who has recorded traffic needs 50 ms of a core for each guess
(`node.identity.member_key`): 64 bits are out of reach, a word with a number is not."""

_ATTEMPTS_PER_CORE: Final = 4


class BadConfig(Exception):
    """The environment does not configure a node. `problems` has one sentence for each thing to correct."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class Config:
    """A node's settings."""

    #: The node's id.
    node: str
    #: The members of the first start; may be empty if the node joins at `join_url`, or if its data folder knows them.
    members: tuple[Seed, ...]
    #: The URL of a member of the running cluster that the node joins; None: it joins none.
    join_url: str | None
    #: The data folder.
    data: Path
    #: The members' secret.
    secret: str
    #: The token of clients; None: clients need none.
    token: str | None
    #: The token of clients that may read only; None: there is none.
    read_token: str | None
    #: The node's labels as sorted pairs.
    labels: tuple[tuple[str, str], ...]
    #: The node's capacity, from 1 to 1,000,000.
    capacity: int
    #: How many attempts run here at once, at most.
    max_runs: int
    #: The address to listen on.
    bind: str
    #: The port for heartbeats; 0: the kernel chooses one.
    heartbeat_port: int
    #: The folder of secret files.
    secrets_dir: Path
    #: The names of the variables that tasks may refer to.
    env_allow: tuple[str, ...]
    #: The values of those variables that `env_allow` names and that are set.
    variables: Mapping[str, str]
    #: Whether tasks of the kind `command` run here.
    allow_command: bool
    #: Names by which clients may address the node, beside its own (the Host header).
    hosts: tuple[str, ...]
    #: How many bytes of the node's disk each use may take.
    bounds: Bounds
    #: How many tasks have metrics of their own, at most.
    metrics_tasks: int
    #: What tasks may reach.
    access: Access
    #: The node's own files and secrets, which no task may read.
    own: NodesOwn
    #: Whether the node joins a running cluster by itself if it finds one instead of founding its own.
    auto_join: bool
    #: The ROTA_* variables that the node itself does not use, by name: kinds may ask for them.
    kind_settings: Mapping[str, str]
    #: The limits of one attempt, except for what it may write (`bounds`).
    limits: Amounts
    #: The umask of the processes of tasks.
    umask: int = 0o022
    #: Whether commands are kept from the node's own files and secrets.
    command_confined: bool = True
    #: The only folders that commands may reach, beside programs and libraries; empty: any.
    command_roots: tuple[str, ...] = ()
    #: Whether the node refuses to start where the kernel cannot confine tasks.
    confinement_required: bool = False
    #: The users that tasks may run as.
    run_as: tuple[str, ...] = ()
    #: The user ids of which each attempt gets one of its own; empty: attempts get none.
    work_uids: range = range(0)

    @property
    def other_users(self) -> bool:
        """Whether attempts may run as other users than the node's."""
        return bool(self.run_as or self.work_uids)

    @property
    def me(self) -> Seed | None:
        """The node's own entry in `members`."""
        return next((seed for seed in self.members if seed.id == self.node), None)


def load_config(environ: Mapping[str, str]) -> Config:
    """The configuration in `environ`. Raises `BadConfig`."""
    reader = SettingsReader(environ)
    config = _read(reader)
    problems = [
        *_membership_problems(config, reader.failed),
        *_label_problems(config),
        *_secret_problems(config, reader.failed),
        *_uid_problems(config),
    ]
    if reader.problems or problems:
        raise BadConfig([*reader.problems, *problems])
    return config


def _read(reader: SettingsReader) -> Config:
    """Read each setting by itself. Errors are collected in the reader's `problems`."""
    node = reader.text("ROTA_NODE")
    data = Path(reader.text("ROTA_DATA") or f".rota/{node}")
    secret, token = reader.secret("ROTA_SECRET") or "", reader.secret("ROTA_TOKEN")
    read_token = reader.secret("ROTA_READ_TOKEN")
    secrets_dir = Path(reader.text("ROTA_SECRETS_DIR"))
    files = map(reader.given_file, ("ROTA_SECRET", "ROTA_TOKEN", "ROTA_READ_TOKEN"))
    own = own_of(files, data, (secret, token, read_token))
    allow_command = reader.parsed("ROTA_ALLOW_COMMAND")
    env_allow = reader.parsed("ROTA_ENV_ALLOW")
    private = reader.parsed_or("ROTA_PRIVATE", NOTHING.own)
    never_reached = (*own.files, own.data, str(secrets_dir.absolute()), *private)
    return Config(
        node=node,
        members=reader.parsed("ROTA_MEMBERS"),
        join_url=reader.given("ROTA_JOIN"),
        data=data,
        secret=secret,
        token=token,
        read_token=read_token,
        labels=reader.parsed("ROTA_LABELS"),
        capacity=reader.parsed("ROTA_CAPACITY"),
        max_runs=reader.parsed_or("ROTA_MAX_RUNS", _ATTEMPTS_PER_CORE * (os.cpu_count() or 1)),
        bind=reader.text("ROTA_BIND"),
        heartbeat_port=reader.parsed("ROTA_HEARTBEAT_PORT"),
        secrets_dir=secrets_dir,
        env_allow=env_allow,
        variables=reader.variables(env_allow),
        allow_command=allow_command,
        hosts=reader.parsed("ROTA_HOSTS"),
        bounds=_read_bounds(reader),
        metrics_tasks=reader.parsed("ROTA_METRICS_TASKS"),
        access=_read_access(reader, node, allow_command, never_reached),
        own=own,
        auto_join=reader.parsed("ROTA_AUTO_JOIN"),
        kind_settings=reader.not_the_nodes(),
        command_confined=reader.parsed("ROTA_COMMAND_CONFINED"),
        command_roots=reader.parsed_or("ROTA_COMMAND_ROOTS", ()),
        confinement_required=reader.parsed("ROTA_CONFINE"),
        limits=_read_limits(reader),
        run_as=reader.parsed_or("ROTA_RUN_AS", ()),
        work_uids=reader.parsed_or("ROTA_WORK_UIDS", range(0)),
    )


def _read_bounds(reader: SettingsReader) -> Bounds:
    """How many bytes of the node's disk each use may take; on a small disk fewer (`Bounds.on`)."""
    return Bounds(
        reserve_bytes=reader.parsed("ROTA_DISK_RESERVE_BYTES"),
        scratch_bytes=reader.parsed("ROTA_SCRATCH_BYTES"),
        log_bytes=reader.parsed("ROTA_LOG_BYTES"),
        logs_bytes=reader.parsed("ROTA_LOGS_BYTES"),
        history_bytes=reader.parsed("ROTA_HISTORY_BYTES"),
    )


def _read_limits(reader: SettingsReader) -> Amounts:
    """The limits of one attempt, except for what it may write, which the bounds of the disk limit."""
    names = {field: name for field, name in limits.SETTINGS.items() if name.startswith("ROTA_LIMIT_")}
    memory = reader.parsed_or(names.pop("memory"), _memory())
    return Amounts(memory=memory, **{field: reader.parsed(name) for field, name in names.items()})


def _memory() -> int | None:
    """The default memory limit of one attempt: four fifths of the memory that this process may use."""
    return memory_bytes() * 4 // 5


def _read_access(reader: SettingsReader, node: str, allow_command: bool, own: tuple[str, ...]) -> Access:
    """What tasks may reach on this node.

    A setting that is not given allows nothing, unless the node runs commands, which reach everything anyway.
    """
    unset = EVERYTHING if allow_command else NOTHING
    return Access(
        node=node,
        source_roots=reader.parsed_or("ROTA_SOURCE_ROOTS", unset.source_roots),
        destination_roots=reader.parsed_or("ROTA_DESTINATION_ROOTS", unset.destination_roots),
        source_hosts=reader.parsed_or("ROTA_SOURCE_HOSTS", unset.source_hosts),
        destination_hosts=reader.parsed_or("ROTA_DESTINATION_HOSTS", unset.destination_hosts),
        own=own,
        postgres_bin=reader.parsed_or("ROTA_POSTGRES_BIN", None),
    )


def _membership_problems(config: Config, failed: set[str]) -> list[str]:
    """The errors in the node's id and in where it finds the members. `failed`: settings reported already."""
    problems = []
    if not config.node:
        problems.append("ROTA_NODE is not set: give this node an id, for example ROTA_NODE=node-1")
    elif not is_name(config.node):
        problems.append(
            f"ROTA_NODE={config.node!r} is not a valid id: it may have letters, digits, '.', '_' and '-', and at most "
            "128 characters, the first a letter or a digit"
        )
    if not config.members and not config.join_url and "ROTA_MEMBERS" not in failed and not knows_members(config.data):
        problems.append(
            "neither ROTA_MEMBERS nor ROTA_JOIN is set: give the members of the first start "
            "(ROTA_MEMBERS=node-1=host:7101:8101,...), or a running cluster to join (ROTA_JOIN=http://host:8101)"
        )
    if config.members and config.node and config.me is None:
        problems.append(
            f"ROTA_MEMBERS does not contain this node: ROTA_NODE is {config.node!r}, "
            f"the members are {', '.join(seed.id for seed in config.members)}; the list must be the same on every "
            "member"
        )
    return problems


def _label_problems(config: Config) -> list[str]:
    if all(name != NODE_LABEL or value == config.node for name, value in config.labels):
        return []
    return [
        f"ROTA_LABELS sets the label 'node': every member has that label with its own id ({config.node!r} here), and "
        "tasks are bound to members by it; give your label another name"
    ]


def _uid_problems(config: Config) -> list[str]:
    uids, least = config.work_uids, 2 * config.max_runs
    if not uids or len(uids) >= least:
        return []
    return [
        f"ROTA_WORK_UIDS={uids.start}-{uids.stop - 1} has {len(uids)} user ids, and must have {least} at least, twice "
        f"ROTA_MAX_RUNS ({config.max_runs}): an attempt keeps its own until its last process has ended"
    ]


def _secret_problems(config: Config, failed: set[str]) -> list[str]:
    """The errors in secret and tokens, for the address on which the node listens. `failed`: reported already."""
    problems = []
    if not config.secret and "ROTA_SECRET" not in failed:
        problems.append(
            "ROTA_SECRET (or ROTA_SECRET_FILE) is not set: members authenticate one another with it, and an open "
            "Raft port would let anyone who reaches it run code here; make one with: openssl rand -hex 32"
        )
    if config.read_token and "ROTA_TOKEN" not in failed and config.read_token == config.token:
        problems.append("ROTA_READ_TOKEN is the same as ROTA_TOKEN: whoever has it may write; give it another value")
    if config.read_token and not config.token and "ROTA_TOKEN" not in failed:
        problems.append(
            "ROTA_READ_TOKEN is set and ROTA_TOKEN is not: without it, nobody needs a token; set both, or none"
        )
    if is_loopback(config.bind):
        return problems
    if not config.token and "ROTA_TOKEN" not in failed:
        problems.append(
            f"ROTA_BIND={config.bind} listens beyond this machine, and ROTA_TOKEN (or ROTA_TOKEN_FILE) is not set: "
            "anyone could register tasks; set a token, or bind to 127.0.0.1"
        )
    problems += [
        f"{name} is too short for ROTA_BIND={config.bind}, which others can reach: {len(value)} characters, and "
        f"fewer than {SHORT_SECRET} can be guessed; make one with: openssl rand -hex 32"
        for name, value in (
            ("ROTA_SECRET", config.secret),
            ("ROTA_TOKEN", config.token),
            ("ROTA_READ_TOKEN", config.read_token),
        )
        if value and len(value) < SHORT_SECRET
    ]
    return problems


def is_loopback(host: str) -> bool:
    """Whether a bind address stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
