"""A node's configuration: the ROTA_* variables of its environment as one frozen value.

The table `node.settings.table` has each variable's meaning, default and parser. All errors are reported at once.
"""

import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from node.app.data_dir import knows_members
from node.execution.domain import runs_later
from node.execution.limits import Amounts
from node.settings.own_environment import export_secrets
from node.settings.row import SettingsReader, rows_of
from node.settings.table import NodeSettings, not_the_nodes
from node.settings.values import is_name
from node.state.entries import Seed
from node.storage.room import Bounds
from tasks.access import Access, is_within
from tasks.definition.spec import NODE_LABEL
from tasks.secret import NodesOwn, mark

SHORT_SECRET: Final = 16
"""A secret or a token with fewer characters is refused where others can reach the node; on loopback, a warning is
logged.

16 random hexadecimal digits are 64 bits. An attacker who has recorded traffic needs 50 ms of a core for each guess
(`node.identity.member_key`): 64 bits are out of reach, a word with a number is not."""


class BadConfig(Exception):
    """The environment does not configure a node. `problems` has one sentence for each thing to correct."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(NodeSettings):
    """A node's settings, and the values derived from them."""

    #: The values of those variables that `env_allow` names and that are set.
    variables: Mapping[str, str]
    #: The ROTA_* variables that the node itself does not use, by name: kinds may ask for them.
    kind_settings: Mapping[str, str]
    #: The variables in which the clients of traces and lineage are given keys, by name.
    export_secrets: Mapping[str, str]
    #: The node's own files and secrets, which no task may read.
    own: NodesOwn
    #: What tasks may reach.
    access: Access
    #: How many bytes of the node's disk each use may take.
    bounds: Bounds
    #: The limits of one attempt, except for what it may write (`bounds`).
    limits: Amounts
    #: The umask of the processes of tasks.
    umask: int = 0o022

    @property
    def other_users(self) -> bool:
        """Whether attempts may run as other users than the node's."""
        return bool(self.run_as or self.work_uids)

    @property
    def me(self) -> Seed | None:
        """The node's own entry in `members`."""
        return next((seed for seed in self.members if seed.id == self.node), None)


def load_config(environ: Mapping[str, str]) -> Config:
    """Return the configuration in `environ`. Raises `BadConfig`."""
    reader = SettingsReader(environ)
    config = _read(reader, environ)
    problems = [
        *_membership_problems(config, reader.failed),
        *_label_problems(config),
        *_secret_problems(config, reader.failed),
        *_uid_problems(config),
    ]
    if reader.problems or problems:
        raise BadConfig([*reader.problems, *problems])
    return config


def _read(reader: SettingsReader, environ: Mapping[str, str]) -> Config:
    """Read the settings one by one, and derive further values. Errors are collected in the reader's `problems`."""
    values = reader.values(NodeSettings)
    secret = {name: row for name, row in rows_of(NodeSettings) if row.has_file}
    files = [*map(reader.given_file, secret.values()), values["lineage"] and _lineage_file(environ)]
    own = own_of(filter(None, files), values["data"], (values[name] for name in secret))
    never_reached = (*own.files, own.data, str(values["secrets_dir"].absolute()), *values["private"])
    return Config(
        **values,
        variables={name: environ[name] for name in values["env_allow"] if name in environ},
        kind_settings={name: text for name in not_the_nodes(environ) if (text := reader.text(name))},
        export_secrets={name: environ[name] for name in export_secrets(environ)},
        own=own,
        access=Access(**_called_as(Access, values), own=never_reached, programs=runs_later()),
        bounds=Bounds(**_called_as(Bounds, values)),
        limits=Amounts(**_called_as(Amounts, values, "limit_")),
    )


def _lineage_file(environ: Mapping[str, str]) -> str | None:
    """Return the file that configures the client of lineage, keys included; None: there is none."""
    named = environ.get("OPENLINEAGE_CONFIG", "").strip()
    return named if named and Path(named).is_file() else None


def _called_as(part: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the arguments of the dataclass `part`: for each of its fields, the setting named `prefix` + field name."""
    return {each.name: values[name] for each in fields(part) if (name := prefix + each.name) in values}


def own_of(files: Iterable[str | None], data: Path, values: Iterable[str | None]) -> NodesOwn:
    """Collect the node's own secret `files`, `data` folder, and secrets' `values`. No reference may resolve to them."""
    key = os.urandom(16)
    return NodesOwn(
        tuple(str(Path(file).absolute()) for file in files if file),
        str(data.absolute()),
        key,
        tuple(mark(value, key) for value in values if value),
    )


def _membership_problems(config: Config, failed: set[str]) -> list[str]:
    """Return the errors in the node's id and in where it finds the members. `failed`: settings reported already."""
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
    """Return the errors in secret and tokens, for the address on which the node listens. `failed`: reported already."""
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
    """Return whether a bind address stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def secrets_in_reach(own: NodesOwn, secrets_dir: Path) -> list[str]:
    """Return a warning for each of the node's own secret files that lies in the folder of the tasks' secrets."""
    folder = os.path.realpath(secrets_dir)
    return [
        f"{file} is a secret of the node and lies in ROTA_SECRETS_DIR ({secrets_dir}). Tasks cannot read it there, but "
        "separate folders are safer: use for example secrets/node and secrets/tasks, set ROTA_SECRET_FILE, "
        "ROTA_TOKEN_FILE and ROTA_SECRETS_DIR to them, and restart the node"
        for file in own.files
        if is_within(os.path.realpath(file), folder)
    ]


def nothing_allowed(access: Access) -> list[str]:
    """Return the names of the access settings that allow no folder, or no host, on this node."""
    allowed_by = {
        "ROTA_SOURCE_ROOTS": access.source_roots,
        "ROTA_DESTINATION_ROOTS": access.destination_roots,
        "ROTA_SOURCE_HOSTS": access.source_hosts,
        "ROTA_DESTINATION_HOSTS": access.destination_hosts,
    }
    return [name for name, allowed in allowed_by.items() if not allowed]
