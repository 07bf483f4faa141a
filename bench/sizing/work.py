"""The kind `nothing`: an attempt of it is a worker that begins and ends."""

import os
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks.kind import Context


def install(folder: Path) -> str:
    """Make a folder in which Python finds the kind `nothing`, as anybody's kind is found; the PYTHONPATH with it."""
    info = folder / "rota_sizing-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-sizing\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rota.kinds]\nnothing = bench.sizing.work:Nothing\n")
    return os.pathsep.join((str(folder), str(Path(__file__).parents[2])))


class NothingParams(BaseModel):
    """A number that is of no use, to make of a definition another one; and for how long nothing is done."""

    model_config = ConfigDict(extra="forbid")

    number: int = 0
    sleep_s: float = 0


class Nothing:
    """Does nothing."""

    Params = NothingParams

    def run(self, ctx: Context[NothingParams]) -> None:
        """Return, after `sleep_s`."""
        time.sleep(ctx.params.sleep_s)
