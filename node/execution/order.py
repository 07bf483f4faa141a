"""What the node orders, and what it hears: an attempt's `Order`, and the events of its life."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from node.state.entries import AttemptEnd
from tasks import access
from tasks.access import NOTHING, Access
from tasks.secret import NOBODYS, NodesOwn

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt to be made, as it was claimed.

    `target` is the kind's `module:Class`; `params` still hold references; `fire_at_us` is in microseconds
    since the epoch; `checkpoint` is packed, as it was committed; `deadline_s` is the lease's, on
    CLOCK_BOOTTIME; `env` is added to the worker's variables; `node` is the member that makes the attempt. `access` is
    what the attempt may reach, `own` what no reference resolves to.
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
    secrets_dir: str = "/run/secrets"
    env_allow: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    access: Access = NOTHING
    own: NodesOwn = NOBODYS


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """What holds for every attempt of a member.

    `stop_s` is how long an attempt that was asked to stop may take before it is killed, `hand_over_s` the
    same for one that is handed over. `umask` is the one that the work begins with; what the node makes is its own
    alone. `oom_score_adj` makes memory pressure take the work before the node.
    """

    nice: int = 10
    oom_score_adj: int = 500
    stop_s: float = 10.0
    hand_over_s: float = 60.0
    log_bytes: int = 64 * MIB
    umask: int = 0o022


@dataclass(frozen=True, slots=True)
class Brief:
    """All that a supervisor is given: the order, the member's limits, and the folder to work in."""

    order: Order
    limits: AttemptLimits
    folder: str

    def pack(self) -> bytes:
        """As msgpack."""
        brief = {"order": asdict(self.order), "limits": asdict(self.limits), "folder": self.folder}
        return bytes(msgpack.packb(brief))


def unpack_brief(packed: bytes) -> Brief:
    """What `Brief.pack` packed."""
    brief = msgpack.unpackb(packed)
    order = brief["order"]
    order["env_allow"] = tuple(order["env_allow"])
    order["access"] = access.unpacked(order["access"])
    own = order["own"]
    order["own"] = NodesOwn(tuple(own["files"]), own["data"], own["key"], tuple(own["marks"]))
    return Brief(Order(**order), AttemptLimits(**brief["limits"]), brief["folder"])


def logs_path(folder: Path) -> Path:
    """Where the logs of all attempts are, under the member's data folder: a folder for each run."""
    return folder / "logs"


def log_path(folder: Path, run_id: str, attempt: int) -> Path:
    """Where the log of an attempt is."""
    return logs_path(folder) / run_id / f"{attempt}.log"


def scratch_path(folder: Path, order: Order) -> Path:
    """The attempt's own folder, removed when it ends. No two claims share one."""
    return scratch_folder(folder, order.run_id, order.token)


def scratch_folder(folder: Path, run_id: str, token: int) -> Path:
    """As `scratch_path`."""
    return folder / "scratch" / f"{run_id}.{token}"


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The kind's work begins: it is loaded here, and the params are valid."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far the work is, at most four times a second."""

    run_id: str
    token: int
    done: float
    total: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """The attempt waits until `data` is committed, or refused: answer with `Runner.checkpoint_done`."""

    run_id: str
    token: int
    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True)
class AttemptFrozen:
    """The lease has lapsed, and every process of the attempt is stopped."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class AttemptThawed:
    """The lease is back, and the attempt goes on."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt has ended and no process of it is left. It comes once for every `Runner.launch`.

    `retry` False: another attempt would only fail the same way. `starved`: it could not be started for want of
    descriptors, processes or memory, as others could not be here either. `log_truncated`: its log is not complete.
    """

    run_id: str
    token: int
    end: AttemptEnd
    result: dict[str, Any] | None = None
    error: str | None = None
    retry: bool = True
    starved: bool = False
    log_truncated: bool = False


Event = AttemptStarted | Progressed | CheckpointAsked | AttemptFrozen | AttemptThawed | AttemptEnded
