"""The shapes of tasks in responses. The command line imports them too, so this module imports nothing slow."""

from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from node.http.api.shapes import Cursor, Time
from tasks.definition.deadlines import DeadlineName
from tasks.definition.run import RunState
from tasks.definition.spec import Spec


class LastView(TypedDict):
    """How a task's last run ended."""

    run_id: str
    state: RunState
    fire_at: Time
    finished_at: Time
    error: str | None


class BreachView(TypedDict):
    """A deadline that is breached: which, and since when.

    `due_at` is the due time of the oldest run that has not begun, or not succeeded, in time; null for `success_every`.
    """

    deadline: DeadlineName
    due_at: Time | None
    since: Time


class LateView(BreachView):
    """A breached deadline of a task, with the time that it allows, and a sentence (`detail`)."""

    limit_s: float
    detail: str


def _shown(of: FieldInfo) -> Any:
    """Return the type of a spec's field in a response. A model becomes a plain object: its schema is for requests."""
    kinds = get_args(of.annotation) or (of.annotation,)
    if not any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds):
        return of.annotation
    return dict[str, Any] | None if NoneType in kinds else dict[str, Any]


if TYPE_CHECKING:

    class SpecView(TypedDict):
        """A task's definition in a response. mypy knows none of its fields, since they are derived below."""

else:
    SpecView = TypedDict(
        "SpecView",
        {name: Annotated[_shown(of), Field(description=of.description)] for name, of in Spec.model_fields.items()},
    )


class HeldTimeView(TypedDict):
    """What holds an occurrence that is due in a blackout, until when, and whether it `begins` then, or is missed.

    `detail` says it in words. `overlap` may skip it still.
    """

    blackouts: list[str]
    until: Time
    begins: bool
    detail: str


class RegisteredView(SpecView):
    """A registered task: its complete definition, and its counters and last outcome.

    `next_held` says what holds the occurrence at `next_fire_at`; null: no blackout does. `late` lists its breached
    deadlines. `degraded` is what its last succeeded run left undone, such as copies of a backup; null: nothing.
    """

    version: int
    paused: bool
    registered_at: Time
    next_fire_at: Time | None
    next_held: HeldTimeView | None
    skipped: int
    missed: int
    last: LastView | None
    late: list[LateView]
    degraded: str | None


class TaskView(RegisteredView):
    """A task and its owner; that of a task with `each` only makes the runs of all members."""

    owner: str | None


class HeldView(TypedDict):
    """Why a task waits although nobody has asked it to: the code and the detail of `GET /v1/tasks/{name}/why`."""

    code: str
    detail: str
    until: Time | None


class ListedTaskView(TaskView):
    """A task in a list. `held`: why it waits, if that is unexpected (no owner, backing off, no room ...)."""

    held: HeldView | None


class ChangedTaskView(RegisteredView):
    """A task that was just registered or changed.

    `warnings`: why no present member can run it, and what the answering node's settings do not allow it to reach.
    """

    warnings: list[str]


class TaskPage(TypedDict):
    """Tasks, by name."""

    items: list[ListedTaskView]
    next: Cursor


class FieldChangeView(TypedDict):
    """A changed field of a definition, as a dotted name, with both values; null: absent."""

    field: str
    before: Any
    after: Any


class PutView(TypedDict):
    """The result for one task of a list (in a dry run: the expected result), and the task's version after it.

    `changes`: the fields that differ from the registered definition; in a dry run only. `warnings` as in
    `ChangedTaskView`.
    """

    name: str
    version: int
    change: Literal["created", "changed", "unchanged"]
    changes: list[FieldChangeView]
    warnings: list[str]


class PutPage(TypedDict):
    """The results for a list of tasks, in its order."""

    items: list[PutView]
    next: Cursor
