"""What the node tells the runner: an attempt's `Order`, the limits of every attempt, and where its files are."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import msgpack
from pydantic import BaseModel

from node.execution import attempt_secrets, limits
from node.execution.attempt_secrets import NO_SECRETS, AttemptSecrets
from node.execution.limits import NO_BOUNDS, Amounts
from tasks import access, needs
from tasks.access import NOTHING, Access
from tasks.needs import UNCONFINED, Needs

MIB = 1024 * 1024

_MOST: Final = Amounts(log=64 * MIB)

CHECKPOINT_BYTES_MAX: Final = 64 * 1024
"""The size limit of a checkpoint, packed."""


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt to start, as it was claimed.

    `target` is the kind's `module:Class`. `params` hold secrets as references. `fire_at_us` is in microseconds since
    the epoch. `checkpoint` is packed, as it was committed. `deadline_s` is the end of the lease on CLOCK_BOOTTIME.
    `env` is added to the worker's variables. `node` is the member on which the attempt runs. `access` is what the
    attempt may reach, `secrets` what its supervisor answers `ctx.secret` from. `preparation` names what its worker may
    have done before (`node.execution.preparation`); empty: nothing. `action` is what the kind does instead of the
    task's work, with `args`; "": the work. `needs` is what the attempt needs of the machine: the kernel refuses it
    everything else. `limits` are the task's own. `run_as` names the user of the attempt, and
    `may_run_as` those that the member allows; `uid` is a number that only this attempt has. "" and None: the node's own
    user (`node.execution.account`).
    """

    run_id: str
    task: str
    kind: str
    target: str
    params: Mapping[str, Any]
    attempt: int
    token: int
    fire_at_us: int
    checkpoint: bytes | None
    timeout_s: float | None
    deadline_s: float
    secrets: AttemptSecrets = NO_SECRETS
    env: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    access: Access = NOTHING
    preparation: str = ""
    action: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    needs: Needs = UNCONFINED
    limits: Amounts = NO_BOUNDS
    run_as: str = ""
    may_run_as: tuple[str, ...] = ()
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Limits of every attempt on a member.

    `stop_s` is how long an attempt that was asked to stop may take before it is killed, `hand_over_s` the same for one
    that is handed over. `most` is what one attempt may use on the member; its task's limits may be lower. `umask` is
    the worker's; the node's own files are readable by its user only. By `oom_score_adj` the kernel kills work before
    the node when memory is short. `landlock` is the ABI by which attempts are confined; 0: this kernel has none, and
    confines nothing.
    """

    nice: int = 10
    oom_score_adj: int = 500
    stop_s: float = 10.0
    hand_over_s: float = 60.0
    most: Amounts = _MOST
    umask: int = 0o022
    landlock: int = 0


@dataclass(frozen=True, slots=True)
class Brief:
    """What a supervisor is given: the order, the member's limits, and the member's data folder."""

    order: Order
    limits: AttemptLimits
    folder: str

    def pack(self) -> bytes:
        """As msgpack."""
        return bytes(msgpack.packb(self, default=_values))

    def for_worker(self) -> "Brief":
        """The brief without what only the supervisor may know."""
        return replace(self, order=replace(self.order, secrets=NO_SECRETS))


def _values(value: Any) -> dict[str, Any]:
    """The values of what msgpack does not know. `asdict` copies all that is in them first, which takes longer."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    return {each.name: getattr(value, each.name) for each in fields(value)}


def unpack_brief(packed: bytes) -> Brief:
    """What `Brief.pack` packed."""
    brief = msgpack.unpackb(packed)
    order = brief["order"]
    order["secrets"] = attempt_secrets.unpacked(order["secrets"])
    order["may_run_as"] = tuple(order["may_run_as"])
    order["access"] = access.unpacked(order["access"])
    order["needs"] = needs.unpacked(order["needs"])
    order["limits"] = limits.unpacked(order["limits"])
    return Brief(Order(**order), unpack_limits(brief["limits"]), brief["folder"])


def unpack_limits(values: Mapping[str, Any]) -> AttemptLimits:
    """The limits that were packed as plain values."""
    return AttemptLimits(**{**values, "most": limits.unpacked(values["most"])})


def logs_path(folder: Path) -> Path:
    """The folder of all attempts' logs in the member's data folder `folder`; it has a folder for each run."""
    return folder / "logs"


def log_path(folder: Path, run_id: str, attempt: int) -> Path:
    """The path of an attempt's log."""
    return logs_path(folder) / run_id / f"{attempt}.log"


def scratch_path(folder: Path, order: Order, prepared: Path | None = None) -> Path:
    """The attempt's scratch folder, which is removed when the attempt ends. Each claim has its own.

    That of a process which was prepared is inside its folder `prepared`, to which it is confined.
    """
    return scratch_folder(folder, order.run_id, order.token) if prepared is None else prepared / "attempt"


def scratch_folder(folder: Path, run_id: str, token: int) -> Path:
    """The scratch folder of the attempt with that token."""
    return folder / "scratch" / f"{run_id}.{token}"
