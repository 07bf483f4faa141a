"""`make compose-test`: the compose file as a user would run it, on whatever Docker engine answers.

    python -m tests.compose [nodes] [spark]

`nodes` and `spark` are the scenarios of the modules of these names; without a name all of them. Ends with 0, or with 1
and what was wrong; where no engine answers it says so and ends with 0.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from node.cli.local import NotInTime
from tests.compose import nodes, spark
from tests.compose.engine import Compose, answers


@dataclass(frozen=True)
class Scenario:
    """What is played; the files of settings that it ends with and begins with; variables for compose beside it."""

    play: Callable[[Compose], None]
    first: str | None = None
    last: str | None = None
    more: dict[str, str] = field(default_factory=dict)


SCENARIOS: Final = {
    "nodes": Scenario(nodes.scenario, last=nodes.FIVE),
    "spark": Scenario(spark.scenario, spark.ENV_FILE, spark.ENV_FILE, spark.SETTINGS),
}


def main() -> None:
    """Run the scenarios that the command line names."""
    parser = argparse.ArgumentParser(prog="compose-test")
    parser.add_argument("names", nargs="*", choices=[*SCENARIOS, []], help="nodes, spark; all without a name")
    names = parser.parse_args().names or list(SCENARIOS)
    if not answers():
        print("compose-test: no Docker engine answers here, so nothing was tested")
        return
    for name in names:
        print(f"{name}:", flush=True)
        _run(SCENARIOS[name])
    print("compose-test: all of it held")


def _run(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compose = Compose(Path(folder), scenario.first, **scenario.more)
        try:
            scenario.play(compose)
        except (NotInTime, AssertionError) as error:
            print(compose("ps", "--all"), compose("logs", "--tail", "40"))
            sys.exit(f"compose-test: FAILED: {error}")
        finally:
            compose.use(scenario.last)
            compose("down", "--volumes", "--remove-orphans")


if __name__ == "__main__":
    main()
