"""The runner's input: an attempt's `Order`, the limits of every attempt, and the paths of their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import msgpack
from pydantic import BaseModel

from node.execution.attempt_secrets import NO_SECRETS, AttemptSecrets
from node.execution.limits import NO_BOUNDS, Amounts
from tasks.access import NOTHING, Access
from tasks.needs import UNCONFINED, Needs

MIB = 1024 * 1024

_MOST: Final = Amounts(log=64 * MIB)

CHECKPOINT_BYTES_MAX: Final = 64 * 1024
"""The size limit of a checkpoint, packed."""


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt to start, as it was claimed."""

    #: The id of the run.
    run_id: str
    #: The name of the task; if it runs on each member, `TASK@MEMBER`: what the work leaves is each member's own.
    task: str
    #: The name of the kind.
    kind: str
    #: The kind's class, as `module:Class`.
    target: str
    #: The params. Secrets in them are references.
    params: Mapping[str, Any]
    #: The number of the attempt in its run, from 1.
    attempt: int
    #: The fencing token of the attempt.
    token: int
    #: The time of the occurrence, in microseconds since the epoch.
    fire_at_us: int
    #: The latest checkpoint of the run, packed as it was committed; None: the run has no checkpoint.
    checkpoint: bytes | None
    #: How long the attempt may take, in seconds; None: no bound.
    timeout_s: float | None
    #: The end of the lease, in seconds on CLOCK_BOOTTIME.
    deadline_s: float
    #: The secrets from which the supervisor answers `ctx.secret`.
    secrets: AttemptSecrets = NO_SECRETS
    #: Environment variables to add for the worker.
    env: Mapping[str, str] = field(default_factory=dict)
    #: The member on which the attempt runs.
    node: str = ""
    #: What the attempt may reach.
    access: Access = NOTHING
    #: The name of the preparation that the worker may have done before (`node.execution.preparation`); "": none.
    preparation: str = ""
    #: The kind's action to run instead of the task's work; "": the work.
    action: str = ""
    #: The arguments of `action`.
    args: Mapping[str, Any] = field(default_factory=dict)
    #: What the attempt needs of the machine. The kernel refuses it everything else.
    needs: Needs = UNCONFINED
    #: The limits of the task itself. A limit above the member's is refused (`node.execution.limits.settled`).
    limits: Amounts = NO_BOUNDS
    #: The user of the attempt, by name; "": the node's own user (`node.execution.account`).
    run_as: str = ""
    #: The users that the member lets tasks run as.
    may_run_as: tuple[str, ...] = ()
    #: A user id that only this attempt has; None: it has no user id of its own.
    uid: int | None = None
    #: The id of the cluster; "": not known.
    cluster: str = ""
    #: When a run of the task succeeded last, in microseconds since the epoch; None: none has.
    succeeded_at_us: int | None = None
    #: When the window of the occurrence begins, in microseconds since the epoch; None: it has no window.
    window_start_us: int | None = None
    #: The params of a sample occurrence, if the run's are made by a template: they reach what the run may reach.
    like: Mapping[str, Any] | None = None
    #: Whether the run is of a backfill: its work, and the start of it, give way to all other work.
    backfill: bool = False


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Limits of every attempt on a member."""

    #: The niceness of the work, from 0 to 19.
    nice: int = 10
    #: The work's oom_score_adj, from 0 to 1000, so that the kernel kills work before the node when memory is short.
    oom_score_adj: int = 500
    #: How long an attempt that was asked to stop may take before it is killed, in seconds.
    stop_s: float = 10.0
    #: How long an attempt that is handed over may take before it is killed, in seconds.
    hand_over_s: float = 60.0
    #: What one attempt may use on the member. The limits of its task may be lower.
    most: Amounts = _MOST
    #: The umask of the worker. The node's own files are readable by its user only.
    umask: int = 0o022
    #: The ABI of Landlock by which attempts are confined; 0: this kernel has none, and attempts are not confined.
    landlock: int = 0


@dataclass(frozen=True, slots=True)
class Brief:
    """The brief of a supervisor: the order, the member's limits, and the member's data folder."""

    order: Order
    limits: AttemptLimits
    folder: str

    def pack(self) -> bytes:
        """Pack as msgpack, without `Order.secrets`, because the worker reads it, but must not see all secrets."""
        return bytes(msgpack.packb(self, default=_values))


def _values(value: Any) -> dict[str, Any]:
    """Return the fields of an object that msgpack cannot pack. `asdict` would be slower: it copies values deeply."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return {each.name: getattr(value, each.name) for each in fields(value) if each.type is not AttemptSecrets}


def unpack_brief(packed: bytes, secrets: bytes = b"") -> Brief:
    """Unpack the result of `Brief.pack`. `secrets` is the result of `AttemptSecrets.pack`; empty: no secrets."""
    brief = msgpack.unpackb(packed)
    order = brief["order"]
    order["secrets"] = AttemptSecrets.unpacked(secrets)
    order["may_run_as"] = tuple(order["may_run_as"])
    order["access"] = Access.unpacked(order["access"])
    order["needs"] = Needs.unpacked(order["needs"])
    order["limits"] = Amounts.unpacked(order["limits"])
    return Brief(Order(**order), unpack_limits(brief["limits"]), brief["folder"])


def unpack_limits(values: Mapping[str, Any]) -> AttemptLimits:
    """Make the limits from their packed fields."""
    return AttemptLimits(**{**values, "most": Amounts.unpacked(values["most"])})


def logs_path(folder: Path) -> Path:
    """Return the folder of all attempts' logs in the data folder `folder`. It has a subfolder for each run."""
    return folder / "logs"


def log_path(folder: Path, run_id: str, attempt: int) -> Path:
    """Return the path of an attempt's log."""
    return logs_path(folder) / run_id / f"{attempt}.log"


def scratch_path(folder: Path, order: Order, prepared: Path | None = None) -> Path:
    """Return the attempt's scratch folder, which is removed when the attempt ends. Each claim has its own.

    A process that was started in advance is confined to the folder `prepared`, so the scratch folder is inside it.
    """
    return scratch_folder(folder, order.run_id, order.token) if prepared is None else prepared / "attempt"


def scratch_folder(folder: Path, run_id: str, token: int) -> Path:
    """Return the scratch folder of the attempt with that token."""
    return folder / "scratch" / f"{run_id}.{token}"
