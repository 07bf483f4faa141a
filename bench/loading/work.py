"""The kinds of the measurement under load."""

import os
import time
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, field_validator

from tasks.kind import Context


def install(folder: Path) -> str:
    """Make a folder in which Python finds these kinds, as anybody's kind is found; the PYTHONPATH with it."""
    info = folder / "rota_loading-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-loading\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[rota.kinds]\nsteps = bench.loading.work:Steps\nblocking = bench.loading.work:Blocking\n"
    )
    return os.pathsep.join((str(folder), str(Path(__file__).parents[2])))


class StepsParams(BaseModel):
    """So many steps of 50 ms, a checkpoint after each twentieth. 0: none, it begins and ends."""

    model_config = ConfigDict(extra="forbid")

    steps: int = 0


class Steps:
    """Waits, and saves checkpoints."""

    Params = StepsParams

    def run(self, ctx: Context[StepsParams]) -> dict[str, Any]:
        """All steps, or those until it is asked to leave off."""
        for step in range(int(ctx.checkpoint or 0), ctx.params.steps):
            if ctx.cancelled:
                ctx.save_checkpoint(step)
                return {"left": step}
            time.sleep(0.05)
            if step % 20 == 19:
                ctx.save_checkpoint(step + 1)
        return {"steps": ctx.params.steps}


_IN_NODE: Final = "ROTA_NODE"
"""In the environment of a node, and not of a worker."""


class BlockingParams(BaseModel):
    """How long a node that checks these params does nothing else: its event loop stands still."""

    model_config = ConfigDict(extra="forbid")

    block_s: float = 0.5
    number: int = 0

    @field_validator("block_s")
    @classmethod
    def _block(cls, value: float) -> float:
        if _IN_NODE in os.environ:
            time.sleep(value)
        return value


class Blocking:
    """A kind whose params are checked by a model that waits, as one might that asks a database."""

    Params = BlockingParams

    def run(self, ctx: Context[BlockingParams]) -> None:
        """Nothing."""
