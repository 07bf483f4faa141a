"""A kind of task, and the context that its `run` receives.

A kind is a class with a pydantic model for its params and one method. It is found by the entry-point group
`rota.kinds`, and needs no base class:

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
from tasks.errors import Away, Failed, Fenced, MissingSecret, Unretryable

__all__ = ["RESULT_BYTES_MAX", "Away", "Context", "Failed", "Fenced", "Kind", "MissingSecret", "Unretryable"]

RESULT_BYTES_MAX: Final = 64 * 1024
"""The size limit of the result that `run` returns, as JSON in UTF-8."""

P_contra = TypeVar("P_contra", bound=BaseModel, contravariant=True)
P_co = TypeVar("P_co", bound=BaseModel, covariant=True)


class Context(Protocol[P_co]):
    """An attempt's view of the cluster. There is one object for the whole attempt."""

    @property
    def params(self) -> P_co:
        """The task's params, checked by the kind's model. Secrets are references."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def node(self) -> str:
        """The id of the member on which this attempt runs."""

    @property
    def cluster(self) -> str:
        """The id of the cluster. `rota cluster recover` gives the cluster another one."""

    @property
    def run_id(self) -> str:
        """The run's id. It is opaque, and the same for every attempt at the run."""

    @property
    def attempt(self) -> int:
        """The number of this attempt at the run, from 1."""

    @property
    def token(self) -> int:
        """The fencing token of this attempt's claim: greater than that of every claim before it."""

    @property
    def fire_at(self) -> datetime:
        """The time at which the run was due (aware, UTC)."""

    @property
    def window_start(self) -> datetime | None:
        """The time at which the schedule was due before (aware, UTC); None: a run by hand, or no such schedule.

        From there to `fire_at` is the window of the run.
        """

    @property
    def succeeded_at(self) -> datetime | None:
        """When a run of the task succeeded last, on any member (aware, UTC); None: none has."""

    @property
    def checkpoint(self) -> Any:
        """The value of the run's last committed checkpoint; None if the run has no checkpoint."""

    def save_checkpoint(self, value: Any) -> None:
        """Commit `value` as the point to resume from: anything that msgpack can pack, 64 KiB packed at most.

        Returns when a majority of the members has stored it. Raises `Fenced` if another attempt has taken the run over,
        and `ValueError` if the value is too large or contains a secret's value.
        """

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Report the progress of the work. Cheap: call it as often as you like."""

    @property
    def log(self) -> logging.Logger:
        """A logger that writes to the attempt's log. Standard output and standard error go there too."""

    @property
    def scratch(self) -> Path:
        """This attempt's scratch folder. It is removed when the attempt ends."""

    def secret(self, reference: Any) -> str:
        """Resolve a reference `{"secret": name}` or `{"env": NAME}`; a plain text is the name of a `secret`.

        Raises `MissingSecret`, also for a reference that the params (or an action's args) do not name as a
        `tasks.secret.Reference`: an attempt gets the secrets that its task refers to, and no other. The value is
        redacted from the log.
        """

    @property
    def access(self) -> Access:
        """The paths and hosts that tasks may reach on this member (`tasks.access`).

        A kind must check the files and hosts that its params name before it opens them: see
        `tasks.file_guard.FileGuard`.
        """

    @property
    def cancelled(self) -> bool:
        """True once the attempt should stop: it was cancelled, has timed out, or is handed over."""


class Kind(Protocol[P_contra]):
    """A kind of task. `Params` checks what a user registers; `run` does the work of one attempt.

    Optional attributes of the class:

    - `requires`: a tuple of module names. Members that cannot import them do not offer the kind.
    - `environment`: a mapping from a variable's name to a setting's name, such as `{"RUN_ENGINE": "ROTA_ENGINE"}`.
      Workers do not inherit the node's ROTA_* variables; a setting that is named here is put into the worker's
      environment under the variable's name, if it is set. A kind cannot ask for the node's own settings.
    - `local_data(params)`: a static method that returns the names of the params (such as `source`) that are on a
      member's own disk, unless the params say that all members see the same data there. A task with such params is
      accepted only if its group binds it to one member (`group: {node: ID}`).
    - `reaches(params, task)`: a static method that returns a `tasks.reach.Reach` for each path or host that the params
      name. A client that registers a task is warned of each one that the answering node would refuse.

    - `datasets(params, task)`: a static method that returns the `tasks.datasets.Datasets` that a run reads and writes,
      for events of lineage (`ROTA_LINEAGE`).
    - `needs(params, task)`: a static method that returns the `tasks.needs.Needs` of an attempt: the kernel refuses the
      attempt everything else. A kind without `needs` gets what a command gets: all that the node's user may use, except
      the node's own files.
    - `prepare(environment, scratch)`: a static method, or a module's function, that a worker calls before it gets an
      attempt, so that slow parts, such as a JVM, have started when `run` begins. `environment` are the worker's
      variables; `scratch` is a folder that lasts as long as the process. `prepare` gets no task, and must not change
      anything outside its process. Kinds with the same function share the processes. `run` must also work without it.
      `prepare_tools`, a tuple of `module:function`, finds the programs and files that it uses (`tasks.needs.Tools`).
    - `at_once`: the name of a setting, such as `ROTA_ENGINES`: the most attempts of all kinds with this name that a
      node runs at once, prepared processes among them. It is half of `ROTA_MAX_RUNS` if it is not set.

    - `one_at_a_time`: True if a run builds upon the one before it, by a ledger or a lineage. A backfill of such a task
      is refused while its `overlap` is `allow`: with any other, its runs begin one after the other, beside none.
    - `no_backfill(params)`: a static method that says why a run for a past time would not do the work of that time, and
      what would; "" if it would.

    - `actions`: a mapping from the name of a method to a pydantic model of its args: other things that a client may ask
      of a task, such as a preview (`POST /v1/tasks/NAME/actions/ACTION`). The method is called as
      `action(ctx, args)` in an attempt of its own, and returns what `run` may return. It runs beside the task's runs,
      is not retried, and counts for none of the task's figures.

    `run` returns a small dict of figures and artifact URLs (JSON types), or None. Any exception fails the attempt;
    `Unretryable` and `MissingSecret` fail the run without retries.
    """

    Params: ClassVar[type[BaseModel]]

    def run(self, ctx: Context[P_contra]) -> dict[str, Any] | None:
        """Do one attempt's work and return its figures."""
