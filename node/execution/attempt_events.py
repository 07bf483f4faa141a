"""The events of attempts, which the runner reports to the node."""

from dataclasses import dataclass
from typing import Any

from tasks.definition.run import AttemptEnd


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The kind is loaded, the params are valid, and the work begins."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """The progress of the work, reported at most four times a second."""

    #: The id of the run.
    run_id: str
    #: The token of the attempt.
    token: int
    #: How much is done, in `unit`.
    done: float
    #: How much there is in all, in `unit`; None: not known.
    total: float | None
    #: What is counted, as the kind names it, such as `rows`.
    unit: str


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """The attempt waits until its checkpoint `data` is committed or refused. Answer with `Runner.checkpoint_done`."""

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
    """The attempt has ended and none of its processes is left. This event comes once for every `Runner.launch`."""

    #: The id of the run.
    run_id: str
    #: The token of the attempt.
    token: int
    #: How the attempt ended.
    end: AttemptEnd
    #: The figures and artifact URLs that the kind returned; None if it returned none.
    result: dict[str, Any] | None = None
    #: Why the attempt failed; None if it did not fail.
    error: str | None = None
    #: Whether another attempt may succeed. False: it would fail the same way.
    retry: bool = True
    #: Whether the attempt could not be started for lack of descriptors, processes or memory.
    starved: bool = False
    #: Whether the attempt's log is incomplete.
    log_truncated: bool = False


Event = AttemptStarted | Progressed | CheckpointAsked | AttemptFrozen | AttemptThawed | AttemptEnded
