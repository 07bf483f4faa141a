"""What a kind of task is, and what it is given when it runs.

A kind is a class, found by the entry-point group `rota.kinds`, with a pydantic model for its
params and one method. It inherits from nothing of ours:

    class Greet:
        class Params(BaseModel):
            name: str

        def run(self, ctx: Context[Params]) -> dict[str, Any] | None:
            ctx.log.info("hello, %s", ctx.params.name)
            return {"greeted": 1}
"""

import logging
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pydantic import BaseModel

from tasks.access import Access
from tasks.errors import Failed, Fenced, MissingSecret, Unretryable

__all__ = ["RESULT_BYTES_MAX", "Context", "Failed", "Fenced", "Kind", "MissingSecret", "Unretryable"]

RESULT_BYTES_MAX: Final = 64 * 1024
"""What `run` returns is no longer than that, as JSON in UTF-8."""

P_contra = TypeVar("P_contra", bound=BaseModel, contravariant=True)
P_co = TypeVar("P_co", bound=BaseModel, covariant=True)


class Context(Protocol[P_co]):
    """What an attempt sees of the cluster. One object, alive as long as the attempt."""

    @property
    def params(self) -> P_co:
        """The task's params, checked by the kind's model, secrets still references."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def node(self) -> str:
        """The id of the member on which this attempt runs."""

    @property
    def run_id(self) -> str:
        """The run, opaque; the same for every attempt at it."""

    @property
    def attempt(self) -> int:
        """1 for the first try at this run, and so on."""

    @property
    def token(self) -> int:
        """The fencing number of this attempt's claim: greater than that of every claim before it."""

    @property
    def fire_at(self) -> datetime:
        """The time for which the run was due (aware, UTC)."""

    @property
    def checkpoint(self) -> Any:
        """What the last committed `save_checkpoint` of this run was given, or None."""

    def save_checkpoint(self, value: Any) -> None:
        """Commit `value` (anything msgpack takes, 64 KiB packed at most) as the place to resume from.

        Returns when a majority has it. Raises `Fenced` if another attempt has taken the run over, and
        `ValueError` if the value is too large.
        """

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Say how far the work is. Cheap; call it as often as you like."""

    @property
    def log(self) -> logging.Logger:
        """Writes to the attempt's log, as do standard output and standard error."""

    @property
    def scratch(self) -> Path:
        """A folder of this attempt's own, removed when it ends."""

    def secret(self, reference: Any) -> str:
        """The value of a reference `{"secret": name}` or `{"env": NAME}`; a plain name means `secret`.

        Raises `MissingSecret`. The value is blotted out of the log.
        """

    @property
    def access(self) -> Access:
        """What tasks may reach on this member: see `tasks.access`, and `tasks.opened.Guard`, which enforces it.

        A kind that opens files or speaks to hosts that its params name asks it first.
        """

    @property
    def cancelled(self) -> bool:
        """True once the attempt should come to an end: cancelled, out of time, or handed over."""


class Kind(Protocol[P_contra]):
    """A kind of task. `Params` checks what a user registers; `run` does one attempt's work.

    A kind that needs packages which not every member has may name them in `requires`, a tuple of module names:
    members without them do not offer it.

    A kind whose params may name data on a member's own disk may say so by a static method `local_data(params)`: the
    names of the fields (such as `source`) that do, unless the params say that all members see the same there. A task
    with such fields is taken only if its group binds it to one member (`group: {node: ID}`).

    A kind whose params name paths or hosts may say so by a static method `reaches(params, task)`: a `tasks.reach.Reach`
    for each. Whoever registers a task is warned then of what the node that answers would refuse.

    `run` returns a small dict of figures and artifact URLs (JSON types), or None. Any exception is a
    failed attempt; `Unretryable` and `MissingSecret` fail the run at once.
    """

    Params: ClassVar[type[BaseModel]]

    def run(self, ctx: Context[P_contra]) -> dict[str, Any] | None:
        """Do one attempt's work and return its figures."""
