"""What the runner tells the node: the events of attempts."""

from dataclasses import dataclass
from typing import Any

from tasks.run import AttemptEnd


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The kind is loaded, the params are valid, and the work begins."""

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
    """The attempt waits until `data` is committed or refused. Answer with `Runner.checkpoint_done`."""

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
    """The lease was renewed, and the attempt continues."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt has ended and none of its processes is left. This event comes once for every `Runner.launch`.

    `retry` False: another attempt would fail the same way. `starved`: the attempt could not be started for lack of
    descriptors, processes or memory. `log_truncated`: its log is not complete.
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
