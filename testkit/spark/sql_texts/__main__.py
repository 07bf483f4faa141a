"""Check many random texts: python -m testkit.spark.sql_texts --texts 1000000 [--first N]."""

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

from spark_tasks.spark.session import MEMORY, spark_session
from spark_tasks.sql import nodes
from testkit.spark.sql_texts.soak import Soak

PORTION = 1_000
"""How many texts are checked between two lines of output."""

HEAP = "4g"
DFA_STATES = 200_000
"""With so many states kept, a text takes half the time."""


def main() -> None:
    """Check the texts, and say what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first text")
    given = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.environ[MEMORY] = HEAP
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, spark_session("texts", Path(folder)) as spark:
        soak = Soak(spark, DFA_STATES)
        for first in range(given.first, given.first + given.texts, PORTION):
            figures = soak.run(first, min(PORTION, given.first + given.texts - first))
            print(
                f"{figures.made} texts, {figures.parsed} parsed, {figures.accepted} accepted, none with what is in no "
                f"list; {figures.made / (time.monotonic() - began_s):.0f} a second",
                flush=True,
            )
        unseen = {name.rpartition(".")[2] for name in (nodes.PLANS | nodes.EXPRESSIONS) - figures.kinds}
        print("refused most often:", figures.reasons.most_common(40))
        print("in no accepted text:", sorted(unseen))


main()
