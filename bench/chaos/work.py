"""The work: it writes down what it does, outside the cluster, so that what happened can be seen from outside.

All attempts at a task append to one file, the task's record; each line is one effect, and the order of the lines is
the order in which the effects took place. An attempt that was taken over and goes on working is seen there, whatever
it believes. A line is: run, token, node, fire_at, when (CLOCK_BOOTTIME, one clock for all), what, step.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from tasks.kind import Context

BEAT_S: Final = 0.05
"""Between two lines of an attempt at work."""

COMMAND: Final = """
import os, sys, time
run, token = os.environ["NURSERY_RUN"].rsplit(":", 1)
node = os.path.basename(os.environ["NURSERY_OF"])
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def note(what, step):
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(file, f"{run} {token} {node} - {at:.6f} {what} {step}\\n".encode())
steps = int(float(sys.argv[2]) / 0.05)
note("begin", 0)
for step in range(steps):
    note("beat", step)
    time.sleep(0.05)
note("end", steps)
"""
"""The same as a program of its own, for the kind `command`: argv is the record and the seconds to work."""


def install(folder: Path) -> str:
    """Make a folder in which Python finds the kind `chaos`, as anybody's kind is found; the PYTHONPATH with it."""
    info = folder / "rota_chaos-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-chaos\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rota.kinds]\nchaos = bench.chaos.work:Chaos\n")
    return os.pathsep.join((str(folder), str(Path(__file__).parents[2])))


def command(record: Path, seconds: float) -> list[str]:
    """The argv of a `command` that works for so long."""
    return [sys.executable, "-I", "-S", "-c", COMMAND, str(record), str(seconds)]


class ChaosParams(BaseModel):
    """How long to work, how often to save a checkpoint (in beats, 0: never), and which attempts fail halfway."""

    model_config = ConfigDict(extra="forbid")

    record: str
    seconds: float
    save_every: int = 0
    fail_attempts: int = 0
    marker: int = 0


class Chaos:
    """Beats, saves checkpoints, fails as it is told, and leaves off when it is asked to."""

    Params = ChaosParams

    def run(self, ctx: Context[ChaosParams]) -> dict[str, Any]:
        """Work from the last checkpoint to the end."""
        params = ctx.params
        record = os.open(params.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        node = Path(os.environ["NURSERY_OF"]).name
        fixed = f"{ctx.run_id} {ctx.token} {node} {ctx.fire_at.isoformat()}"

        def note(what: str, step: int) -> None:
            at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
            os.write(record, f"{fixed} {at_s:.6f} {what} {step}\n".encode())

        steps = int(params.seconds / BEAT_S)
        begin = int(ctx.checkpoint or 0)
        note("begin", begin)
        for step in range(begin, steps):
            if ctx.cancelled:
                note("left", step)
                return {"left": step}
            note("beat", step)
            ctx.progress(step, steps, "beats")
            if ctx.attempt <= params.fail_attempts and step >= steps // 2:
                raise RuntimeError(f"attempt {ctx.attempt} was told to fail")
            time.sleep(BEAT_S)
            if params.save_every and (step + 1) % params.save_every == 0:
                note("saving", step + 1)
                ctx.save_checkpoint(step + 1)
                note("saved", step + 1)
        note("end", steps)
        return {"begin": begin, "steps": steps}
