"""A kind for `bench.preparing`: says when its first Spark job begins and when it is done."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from spark_tasks.spark import session
from spark_tasks.spark.tools import SPARK_TOOLS
from tasks.kind import Context
from tasks.needs import Needs

READY: Final = "ready"


class FirstJob:
    """Prints the time (seconds since the epoch) before and after its first job. `stays`: and waits to be stopped."""

    class Params(BaseModel):
        """Whether to wait."""

        model_config = ConfigDict(extra="forbid")

        stays: bool = False

    requires = ("pyspark",)
    environment = session.ENVIRONMENT
    at_once = session.AT_ONCE
    prepare_tools = (SPARK_TOOLS,)

    @staticmethod
    def needs(params: Params, task: str) -> Needs:
        """Spark."""
        return Needs(tools=(SPARK_TOOLS,))

    @staticmethod
    def prepare(environment: Mapping[str, str], scratch: Path) -> None:
        """As the kinds on Spark; a file says that it is done."""
        session.prepare(environment, scratch)
        (scratch / READY).touch()

    def run(self, ctx: Context[Params]) -> dict[str, Any]:
        """One job of a thousand rows."""
        with session.spark_session(ctx.run_id, ctx.scratch) as spark:
            begun_s = time.time()
            spark.range(1000).selectExpr("sum(id)").collect()
            print("first job", begun_s, time.time(), flush=True)
            while ctx.params.stays and not ctx.cancelled:
                time.sleep(0.05)
        return {}
