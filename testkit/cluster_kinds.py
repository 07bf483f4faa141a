"""Kinds that the nodes of a test's cluster have: found by an entry point, like anybody's, in a folder of the test's."""

import ctypes
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from tasks.kind import Away, Context
from tasks.needs import Needs
from tasks.secret import Reference

DIST_INFO = "rota_kinds_for_tests-1.dist-info"


def install(folder: Path) -> str:
    """Make a folder in which Python finds these kinds; the PYTHONPATH with it."""
    info = folder / DIST_INFO
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-kinds-for-tests\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[rota.kinds]\nprobe = testkit.cluster_kinds:Probe\nblocking = bench.loading.work:Blocking\n"
        "engine = testkit.cluster_kinds:Engine\nfirst_job = bench.first_job:FirstJob\n"
        "many_sinks = testkit.spark.many_sinks:ManySinks\nnumbered = testkit.cluster_kinds:Numbered\n"
    )
    return os.pathsep.join((str(folder), str(Path(__file__).parents[1])))


class Probe:
    """Takes steps, a checkpoint after each, and notes all it does in a file; then waits until it is let go.

    `needs` is a file without which it says that something does not answer.

    While it waits it beats: a note every few milliseconds, so that the file shows when it was at work.
    """

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        notes: str | None = None
        steps: int = 0
        gate: str | None = None
        fail_attempts: int = 0
        needs: str | None = None
        deaf: bool = False
        secret: Reference | None = None
        says: str | None = None

    class Preview(BaseModel):
        model_config = ConfigDict(extra="forbid")

        rows: int = 2

    class Nothing(BaseModel):
        model_config = ConfigDict(extra="forbid")

    actions: ClassVar[dict[str, type[BaseModel]]] = {"preview": Preview, "fails": Nothing}

    def preview(self, ctx: Context[Params], args: Preview) -> dict[str, Any]:
        """What a preview of a kind on Spark gives: `rows` rows of the steps."""
        rows = [[step, f"step {step}"] for step in range(min(args.rows, ctx.params.steps))]
        columns = [{"name": "n", "type": "bigint"}, {"name": "text", "type": "string"}]
        return {"columns": columns, "rows": rows, "more": args.rows < ctx.params.steps, "plan": "a plan"}

    def fails(self, ctx: Context[Params], args: Nothing) -> None:
        raise RuntimeError("this action fails")

    def run(self, ctx: Context[Params]) -> dict[str, Any]:
        params = ctx.params
        begun_at = int(ctx.checkpoint or 0)
        self._note(ctx, "begin", begun_at)
        if params.secret is not None:
            print("the secret is", ctx.secret(params.secret))
        if params.says is not None:
            print(params.says, flush=True)
        for step in range(begun_at, params.steps):
            self._note(ctx, "step", step)
            ctx.progress(step + 1, params.steps, "steps")
            ctx.save_checkpoint(step + 1)
        if params.needs is not None and not Path(params.needs).exists():
            raise Away(f"{params.needs} does not answer")
        if ctx.attempt <= params.fail_attempts:
            raise RuntimeError(f"attempt {ctx.attempt} was told to fail")
        while params.gate is not None and not Path(params.gate).exists():
            if ctx.cancelled and not params.deaf:
                ctx.save_checkpoint(max(begun_at, params.steps))
                self._note(ctx, "left")
                return {"left": True}
            self._note(ctx, "beat")
            time.sleep(0.01)
        self._note(ctx, "end")
        return {"begun_at": begun_at, "steps": params.steps}

    @staticmethod
    def _note(ctx: Context[Params], what: str, step: int | None = None) -> None:
        if ctx.params.notes is not None:
            note = {"what": what, "attempt": ctx.attempt, "token": ctx.token, "pid": os.getpid(), "step": step}
            with Path(ctx.params.notes).open("a") as file:
                file.write(json.dumps({**note, "run": ctx.run_id, "at_us": time.time_ns() // 1000}) + "\n")


_PREPARED: list[Path] = []


class Engine:
    """Says whether its process was prepared; waits until its gate is there."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        gate: str | None = None

    at_once = "ROTA_ENGINES"

    @staticmethod
    def prepare(environment: Mapping[str, str], scratch: Path) -> None:
        (scratch / "ready").touch()
        _PREPARED.append(scratch)

    def run(self, ctx: Context[Params]) -> dict[str, Any]:
        while ctx.params.gate is not None and not Path(ctx.params.gate).exists() and not ctx.cancelled:
            time.sleep(0.01)
        return {"prepared": bool(_PREPARED)}


def leave_shared() -> None:
    """Make shared memory, a semaphore and a queue of System V, which outlive this process."""
    libc = ctypes.CDLL(None)
    made = (libc.shmget(0, 4096, 0o600), libc.semget(0, 1, 0o600), libc.msgget(0, 0o600))
    assert min(made) >= 0, made


class Numbered:
    """Says who it is. It needs nothing of the machine. With `leaves` it leaves shared objects behind."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        sleep_s: float = 0
        leaves: bool = False

    @staticmethod
    def needs(params: Params, task: str) -> Needs:
        """Nothing."""
        return Needs()

    def run(self, ctx: Context[Params]) -> dict[str, Any]:
        (ctx.scratch / "own").touch()
        if ctx.params.leaves:
            leave_shared()
        until_s = time.monotonic() + ctx.params.sleep_s
        while time.monotonic() < until_s and not ctx.cancelled:
            time.sleep(0.02)
        return {"uids": list(os.getresuid()), "groups": os.getgroups(), "home": os.environ["HOME"]}
