"""A kind that counts slowly: the smallest piece of work that can be resumed from a checkpoint."""

import time
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Count:
    """Counts to `to`. A later attempt, on any member, continues from the last checkpoint."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        to: int = Field(default=100, ge=1, le=1_000_000)
        every_s: float = Field(default=0.1, ge=0, le=60)
        checkpoint_every: int = Field(default=10, ge=1)

    def run(self, ctx: Any) -> dict[str, Any]:
        params: Count.Params = ctx.params
        begun_at = counted = int(ctx.checkpoint or 0)
        ctx.log.info("attempt %d counts on from %d", ctx.attempt, counted)
        while counted < params.to and not ctx.cancelled:
            time.sleep(params.every_s)
            counted += 1
            ctx.progress(counted, params.to, "numbers")
            if counted % params.checkpoint_every == 0:
                ctx.save_checkpoint(counted)
        if counted < params.to:
            ctx.save_checkpoint(counted)  # asked to stop: the next attempt continues here
        return {"counted": counted, "here": counted - begun_at}
