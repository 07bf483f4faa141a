"""The settings of a node: one table with a row for each ROTA_* variable. Kinds may ask for other variables.

Code that needs a setting reads the field of `NodeSettings`. `unknown_settings` and `rota up` are derived from the
table, and so is the reference page docs/reference/settings.md (`testkit.reference.settings`).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from node.client import DEFAULT_URL
from node.execution.machine import memory_bytes
from node.settings.row import PREFIX, Above, Setting, rows_of, value_of
from node.settings.values import (
    integer_between,
    no_value,
    parse_confine,
    parse_cores,
    parse_disk_bytes,
    parse_env_allow,
    parse_files,
    parse_folder,
    parse_labels,
    parse_members,
    parse_memory,
    parse_roots,
    parse_switch,
    parse_uids,
    parse_users,
    parse_words,
    zero_or,
)
from node.storage.room import Bounds
from tasks.access import EVERYTHING, NOTHING, Access, parse_hosts

if TYPE_CHECKING:
    from node.state.entries import Seed  # not for `rota up`, which starts sooner without the state

_BOUNDS: Final = Bounds()
_GIVEN_PER_NODE: Final = "it gives each node its own"
_OWN_SECRET: Final = "it makes a secret and keeps it in its folder"  # noqa: S105 - a sentence
_ATTEMPTS_PER_CORE: Final = 4


def _unset_access(above: Above) -> Access:
    """Return what tasks may reach by an unset access setting: nothing, or all if commands run here, which reach all."""
    return EVERYTHING if above["allow_command"] else NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a node, each declared here and nowhere else. `SettingsReader` reads all of them."""

    node: str = value_of(
        Setting(
            "ROTA_NODE",
            "The node's id: letters, digits, `.`, `_` and `-`, 128 characters at most. Required.",
            example="node-1",
            not_for_up=_GIVEN_PER_NODE,
            parse=str,
            heading="Identity and membership",
        )
    )
    members: "tuple[Seed, ...]" = value_of(
        Setting(
            "ROTA_MEMBERS",
            "The members of the first start, this node among them, as `id=host:raftport:httpport`. The list must be "
            "the same on every member. Later starts take it from the data folder.",
            example="node-1=10.0.0.1:7101:8101,node-2=10.0.0.2:7101:8101,node-3=10.0.0.3:7101:8101",
            not_for_up=_GIVEN_PER_NODE,
            parse=parse_members,
        )
    )
    join_url: str | None = value_of(
        Setting(
            "ROTA_JOIN",
            "The API of a member of a running cluster that this node joins, or several, separated by commas.",
            example="http://10.0.0.1:8101",
            not_for_up="its nodes make a cluster of their own",
            parse=str,
            unset=no_value,
        )
    )
    auto_join: bool = value_of(
        Setting(
            "ROTA_AUTO_JOIN",
            "1: a node whose `ROTA_MEMBERS` names a running cluster asks that cluster to add it. "
            "0: it waits until `rota join` adds it.",
            default="0",
            example="1",
            parse=parse_switch,
        )
    )
    data: Path = value_of(
        Setting(
            "ROTA_DATA",
            "The data folder: Raft log, snapshots, history, logs of attempts, scratch folders. One node has it at a "
            "time.",
            computed="`.rota/` and the node's id, in the working folder; `/data` in the image",
            example="/var/lib/rota",
            not_for_up=_GIVEN_PER_NODE,
            parse=Path,
            unset=lambda above: Path(f".rota/{above['node']}"),
        )
    )
    labels: tuple[tuple[str, str], ...] = value_of(
        Setting(
            "ROTA_LABELS",
            "Labels of the node, as `name=value`, which a task's `group` selects by. Every member has the label `node` "
            "with its own id.",
            example="zone=a,disk=ssd",
            parse=parse_labels,
        )
    )
    capacity: int = value_of(
        Setting(
            "ROTA_CAPACITY",
            "The node's share of the tasks: a node of capacity 2 gets up to twice as much as a node "
            "of capacity 1. 1 to 1000000.",
            default="1",
            example="4",
            parse=integer_between(1, 1_000_000),
        )
    )
    bind: str = value_of(
        Setting(
            "ROTA_BIND",
            "The address on which the node listens: API, Raft and heartbeats. Beyond loopback it requires "
            "`ROTA_TOKEN`, and a secret and a token of at least 16 characters.",
            default="127.0.0.1",
            example="0.0.0.0",  # noqa: S104 - an example of a value
            not_for_up="its nodes listen on this machine only",
            parse=str,
            heading="Network",
        )
    )
    heartbeat_port: int = value_of(
        Setting(
            "ROTA_HEARTBEAT_PORT",
            "The TCP port of the heartbeats. 0: the kernel chooses one at each start.",
            default="0",
            example="7102",
            not_for_up=_GIVEN_PER_NODE,
            parse=integer_between(0, 65_535),
        )
    )
    hosts: tuple[str, ...] = value_of(
        Setting(
            "ROTA_HOSTS",
            "More host names by which clients call this node's API, such as a proxy's. IP addresses, `localhost` and "
            "the members' hosts are always accepted.",
            example="rota.example.com",
            parse=parse_words,
        )
    )
    secret: str = value_of(
        Setting(
            "ROTA_SECRET",
            "The secret with which members authenticate one another; the same on every member. Required.",
            example="output of `openssl rand -hex 32`",
            has_file=True,
            not_for_up=_OWN_SECRET,
            parse=str,
            heading="Secret and token",
        )
    )
    token: str | None = value_of(
        Setting(
            "ROTA_TOKEN",
            "The token that clients send. Read by nodes, which require it, and by the command line, which sends it. "
            "Not set: a node that listens on loopback requires none.",
            example="output of `openssl rand -hex 32`",
            has_file=True,
            parse=str,
            unset=no_value,
        )
    )
    read_token: str | None = value_of(
        Setting(
            "ROTA_READ_TOKEN",
            "A second token, with which clients may read everything and change nothing. Requires `ROTA_TOKEN`.",
            example="output of `openssl rand -hex 32`",
            has_file=True,
            parse=str,
            unset=no_value,
        )
    )
    allow_command: bool = value_of(
        Setting(
            "ROTA_ALLOW_COMMAND",
            "1: the node runs tasks of kind `command`, and programs of `stream` backups. They run as the node's user.",
            computed="`0`; `1` under `rota up`",
            default="0",
            example="1",
            parse=parse_switch,
            heading="Running tasks",
        )
    )
    command_confined: bool = value_of(
        Setting(
            "ROTA_COMMAND_CONFINED",
            "1: the kernel keeps commands, and kinds that do not say what they need, from the node's own files, the "
            "tasks' secrets, other attempts and root's capabilities. 0: they get all that the node's user may, as "
            "docker, sudo, mount and root's cron jobs need it.",
            default="1",
            example="0",
            parse=parse_switch,
        )
    )
    command_roots: tuple[str, ...] = value_of(
        Setting(
            "ROTA_COMMAND_ROOTS",
            "Folders to which commands are narrowed, beside programs and libraries. `/dev/pts` among them lets them "
            "open terminals (`script`, `expect`, `sshpass`), those of other sessions of their user too: `/,/dev/pts` "
            "narrows them to no folder.",
            computed="none: they are not narrowed",
            example="/srv,/var/lib/app",
            parse=parse_roots,
        )
    )
    run_as: tuple[str, ...] = value_of(
        Setting(
            "ROTA_RUN_AS",
            "Users of this machine that tasks may run as (`run_as`). root must be named itself: it is no other user's "
            "right. The node must be root, or have the capabilities for it.",
            example="deploy,postgres",
            parse=parse_users,
        )
    )
    work_uids: range = value_of(
        Setting(
            "ROTA_WORK_UIDS",
            "User ids of which each attempt that names no path of the machine gets one of its own. No user and no "
            "other node of the machine may have one of them; at least twice `ROTA_MAX_RUNS`. Not for commands, tasks "
            "with `run_as` and kinds on Spark. At the node's start every process of these users is killed.",
            example="200000-200099",
            parse=parse_uids,
            unset=lambda _: range(0),
        )
    )
    confinement_required: bool = value_of(
        Setting(
            "ROTA_CONFINE",
            "`required`: the node does not start where the kernel cannot confine tasks (Landlock, Linux 5.19). `auto`: "
            "it starts, and says so.",
            default="auto",
            example="required",
            parse=parse_confine,
        )
    )
    max_runs: int = value_of(
        Setting(
            "ROTA_MAX_RUNS",
            "How many attempts the node runs at once; others wait and say so. 1 to 10000.",
            computed="4 for each core",
            example="16",
            parse=integer_between(1, 10_000),
            unset=lambda _: _ATTEMPTS_PER_CORE * (os.cpu_count() or 1),
        )
    )
    secrets_dir: Path = value_of(
        Setting(
            "ROTA_SECRETS_DIR",
            'The folder of the tasks\' secrets: `{"secret": "pg_password"}` is the file `pg_password` in it. Read by '
            "`rota backup` too.",
            default="/run/secrets",
            example="/etc/rota/secrets",
            parse=Path,
        )
    )
    env_allow: tuple[str, ...] = value_of(
        Setting(
            "ROTA_ENV_ALLOW",
            'Variables of the node\'s environment that tasks may refer to by `{"env": "NAME"}`, and that nothing '
            "inherits. `ROTA_*` never.",
            example="PGPASSWORD,API_KEY",
            parse=parse_env_allow,
        )
    )
    source_roots: tuple[str, ...] = value_of(
        Setting(
            "ROTA_SOURCE_ROOTS",
            "Folders that `backup`, `ingest` and `etl` may read; `/` allows all.",
            computed="none; with `ROTA_ALLOW_COMMAND=1`: all",
            example="/srv,/var/lib/app",
            parse=parse_roots,
            unset=lambda above: _unset_access(above).source_roots,
            heading="What tasks may reach",
        )
    )
    destination_roots: tuple[str, ...] = value_of(
        Setting(
            "ROTA_DESTINATION_ROOTS",
            "Folders to which backups, tables, and SQLite files and ledgers of `etl` may be written; `/` allows all.",
            computed="none; with `ROTA_ALLOW_COMMAND=1`: all",
            example="/mnt/backups",
            parse=parse_roots,
            unset=lambda above: _unset_access(above).destination_roots,
        )
    )
    source_hosts: tuple[str, ...] = value_of(
        Setting(
            "ROTA_SOURCE_HOSTS",
            "PostgreSQL servers, and hosts and buckets from which `ingest` reads: `HOST`, `HOST:PORT`, `*.DOMAIN`, "
            "`s3://BUCKET`; `*` allows all. `localhost` allows PostgreSQL's local socket too.",
            computed="none; with `ROTA_ALLOW_COMMAND=1`: all",
            example="db.internal:5432,s3://landing",
            parse=parse_hosts,
            unset=lambda above: _unset_access(above).source_hosts,
        )
    )
    destination_hosts: tuple[str, ...] = value_of(
        Setting(
            "ROTA_DESTINATION_HOSTS",
            "Hosts and buckets to which backups may be written, and PostgreSQL servers and webhooks to which `etl` may "
            "write; for an S3 server of your own, the host of its `endpoint_url`.",
            computed="none; with `ROTA_ALLOW_COMMAND=1`: all",
            example="s3://backups,*.corp",
            parse=parse_hosts,
            unset=lambda above: _unset_access(above).destination_hosts,
        )
    )
    private: tuple[str, ...] = value_of(
        Setting(
            "ROTA_PRIVATE",
            "More files and folders that no task may reach, as it may not reach the node's own: another node's data on "
            "this machine, for example.",
            computed="none; under `rota up`: the data of its other nodes",
            example="/var/lib/other",
            parse=parse_roots,
        )
    )
    postgres_bin: str | None = value_of(
        Setting(
            "ROTA_POSTGRES_BIN",
            "The folder of `pg_dump`, `psql` and `pg_restore`.",
            computed="found by `PATH` and where distributions install it",
            example="/usr/lib/postgresql/17/bin",
            parse=parse_folder,
            unset=no_value,
        )
    )
    limit_memory: int | None = value_of(
        Setting(
            "ROTA_LIMIT_MEMORY",
            "Memory of all processes of one attempt, as bytes or as `512MiB` or `2GB`. A task's `limits.memory` may be "
            "less, not more; so it is with the others here. 0: no limit.",
            computed="four fifths of the machine's, or of what its container or service may use",
            example="4GiB",
            parse=parse_memory,
            unset=lambda _: memory_bytes() * 4 // 5,
            heading="What one attempt may use",
        )
    )
    limit_cpu_milli: int | None = value_of(
        Setting(
            "ROTA_LIMIT_CPU",
            "Cores, with three decimal places at most, where cgroups hold them. 0: no limit.",
            default="0",
            example="1.5",
            parse=parse_cores,
        )
    )
    limit_processes: int | None = value_of(
        Setting(
            "ROTA_LIMIT_PROCESSES",
            "Processes and threads. 8 to 4194304; 0: no limit.",
            default="4096",
            example="512",
            parse=zero_or(integer_between(8, 4_194_304)),
        )
    )
    limit_files: int | None = value_of(
        Setting(
            "ROTA_LIMIT_FILES",
            "Files and connections that each process of an attempt may have open at once. From 32; at most, and with "
            "0: what the node's hard limit (`ulimit -Hn`) leaves, of which it keeps 1,024 for itself, or a quarter.",
            default="0",
            example="4096",
            parse=parse_files,
        )
    )
    reserve_bytes: int = value_of(
        Setting(
            "ROTA_DISK_RESERVE_BYTES",
            "Free space that the node keeps back: with less than twice of it, the node takes on nothing new; with "
            "less than it, the node stops the attempts that hold most. At most a sixteenth of the disk.",
            default=str(_BOUNDS.reserve_bytes),
            example="1073741824",
            parse=parse_disk_bytes,
            heading="Disk",
        )
    )
    scratch_bytes: int = value_of(
        Setting(
            "ROTA_SCRATCH_BYTES",
            "What one attempt may write to its scratch folder; a task's `limits.scratch` may be less. 0: half of the "
            "disk.",
            default=str(_BOUNDS.scratch_bytes),
            example="10737418240",
            parse=parse_disk_bytes,
        )
    )
    log_bytes: int = value_of(
        Setting(
            "ROTA_LOG_BYTES",
            "The log of one attempt; what exceeds it is dropped, and the run says `log_truncated`. A task's "
            "`limits.log` may be less. At most a sixteenth of the disk.",
            default=str(_BOUNDS.log_bytes),
            example="16777216",
            parse=parse_disk_bytes,
        )
    )
    logs_bytes: int = value_of(
        Setting(
            "ROTA_LOGS_BYTES",
            "The logs of all attempts on the node; the oldest are deleted first. At most an eighth of the disk.",
            default=str(_BOUNDS.logs_bytes),
            example="4294967296",
            parse=parse_disk_bytes,
        )
    )
    history_bytes: int = value_of(
        Setting(
            "ROTA_HISTORY_BYTES",
            "The history of finished runs on the node; the oldest are deleted first. At most a quarter of the disk.",
            default=str(_BOUNDS.history_bytes),
            example="1073741824",
            parse=parse_disk_bytes,
        )
    )
    metrics_tasks: int = value_of(
        Setting(
            "ROTA_METRICS_TASKS",
            "For how many tasks `/metrics` has figures of their own: those that were registered first. 0 to 1000000.",
            default="1000",
            example="5000",
            parse=integer_between(0, 1_000_000),
            heading="Metrics",
        )
    )
    traces: bool = value_of(
        Setting(
            "ROTA_TRACES",
            "1: the node sends a trace of each run by OpenTelemetry, to `OTEL_EXPORTER_OTLP_ENDPOINT` (if it is not "
            "set: to `http://localhost:4318`); all of the SDK's `OTEL_*` variables count. Needs the extra `otel`. Set "
            "it on all members.",
            default="0",
            example="1",
            parse=parse_switch,
            heading="Traces and lineage",
        )
    )
    lineage: bool = value_of(
        Setting(
            "ROTA_LINEAGE",
            "1: the node sends OpenLineage events of each run to `OPENLINEAGE_URL`; all of the client's "
            "`OPENLINEAGE_*` variables count, such as `OPENLINEAGE_API_KEY` and `OPENLINEAGE_NAMESPACE` (if it is not "
            "set: `rota.` and the id of the cluster). Needs the extra `lineage`. Set it on all members.",
            default="0",
            example="1",
            parse=parse_switch,
        )
    )


URL: Final = Setting(
    "ROTA_URL",
    "Where the command line finds the cluster: the address of an API, or several, separated by commas. Nodes "
    "ignore it.",
    default=DEFAULT_URL,
    example="http://10.0.0.1:8101,http://10.0.0.2:8101",
    parse=str,
    heading="Command line",
)
"""The one setting that only the command line reads."""

ROWS: Final[tuple[Setting[Any], ...]] = (*(row for _, row in rows_of(NodeSettings)), URL)
"""All settings, in the order of the reference page."""

SETTINGS: Final = {row.name: row for row in ROWS}
"""All settings, by the name of the variable."""

FILE_NAMES: Final = {row.file_name: row for row in SETTINGS.values() if row.has_file}
"""The settings whose values may come from files, by the variable that names the file."""


def is_the_nodes(name: str) -> bool:
    """Return whether a ROTA_* variable is the node's setting, or set by it for commands. Kinds do not get these."""
    if name in SETTINGS or name in FILE_NAMES:
        return True
    from tasks.command.ctx import VARIABLES  # here, since few environments have others

    return name in VARIABLES


def not_the_nodes(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the ROTA_* variables that the node itself does not use."""
    return frozenset(name for name in environ if name.startswith(PREFIX) and not is_the_nodes(name))


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Return the ROTA_* variables that neither the node nor an installed kind uses: probably misspelt.

    >>> unknown_settings({"ROTA_NODE": "a", "ROTA_MEMBRES": "", "ROTA_SECRET_FILE": "", "HOME": "/root"})
    ['ROTA_MEMBRES']
    """
    unknown = not_the_nodes(environ)
    if not unknown:
        return []
    from tasks.installed_kinds import installed, settings_asked_for

    return sorted(unknown - settings_asked_for(installed().values()))
