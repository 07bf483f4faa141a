"""Runs and their attempts."""

from typing import Any

from typing_extensions import TypedDict

from node.http.responses.common import Cursor, Time
from node.state.value import Trigger
from tasks.definition.run import RunState


class ProgressView(TypedDict):
    """How far an attempt is."""

    done: float
    total: float | None
    unit: str


class AttemptView(TypedDict):
    """An attempt of a run. `log_truncated`: its log reached its limit, or could not be written to its end."""

    attempt: int
    node: str
    token: int
    state: RunState
    started_at: Time | None
    finished_at: Time | None
    error: str | None
    log_truncated: bool


class RunView(TypedDict):
    """A run. `attempt`, `token`, `node`, `claimed_at` and `started_at` are those of the present or latest attempt.

    Consecutive occurrences that were skipped or missed for one reason are one entry, of `count` occurrences from
    `fire_at` to `last_fire_at`; `blocked_by` is the run that was active meanwhile. Of any other run, `count` is 1.

    `progress` and `frozen_since` come from the member that runs it, and are null if that does not answer. A run is
    frozen while its member holds no lease: it continues when the lease is back, or is taken over by another member.

    `params` are those that were given for this run in place of the task's; null: it has the task's. Secrets in them are
    references, as they were given.

    `action` is what a client asked the kind to do instead of the task's work, such as `preview`, with `args`; null: it
    did the work.

    `due_at` is until when a run waits that no member holds, such as one whose attempt has failed; `error` says why.

    `took_s` is how long the run took from its first claim to its end, with the pauses between its attempts; null: it
    has not ended, or no member claimed it.
    """

    run_id: str
    task: str
    kind: str
    trigger: Trigger
    params: dict[str, Any] | None
    action: str | None
    args: dict[str, Any] | None
    fire_at: Time
    attempt: int | None
    token: int | None
    node: str | None
    state: RunState
    claimed_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    took_s: float | None
    progress: ProgressView | None
    frozen_since: Time | None
    due_at: Time | None
    checkpoint: Any
    result: dict[str, Any] | None
    error: str | None
    attempts: list[AttemptView]
    cancelling: str | None
    count: int
    last_fire_at: Time
    blocked_by: str | None


class RunPage(TypedDict):
    """Runs, newest first."""

    items: list[RunView]
    next: Cursor


class StartedView(TypedDict):
    """The new run; it waits for the task's owner to claim it."""

    run_id: str
