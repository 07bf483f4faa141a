"""Collections of garbage stay short: what survived a long one is not looked at again."""

import gc
import subprocess
import sys

from node.runtime.gc_tuning import LONG_S, Freezer


def _collections(*full_took_s: float, generation: int = 2) -> int:
    """How often is frozen, where collections of a generation take so long?"""
    frozen: list[float] = []
    now = [0.0]
    freezer = Freezer(lambda: frozen.append(now[0]), lambda: now[0])
    for took_s in full_took_s:
        freezer("start", {"generation": generation})
        now[0] += took_s
        freezer("stop", {"generation": generation})
    return len(frozen)


def test_only_what_survived_a_long_full_collection_is_frozen() -> None:
    assert _collections(LONG_S / 2, LONG_S / 2, LONG_S / 2) == 0
    assert _collections(LONG_S / 2, 2 * LONG_S, LONG_S / 2) == 1
    assert _collections(2 * LONG_S, 3 * LONG_S, generation=1) == 0


def test_a_state_that_grows_is_not_looked_at_over_and_over() -> None:
    """In a process of its own, since what is frozen stays so."""
    program = """
import gc
from itertools import count
from node.runtime.gc_tuning import collect_in_short
most = 0
def look(phase, info):
    global most
    if phase == "start" and info["generation"] == 2:
        most = max(most, len(gc.get_objects()))
collect_in_short(clock=count().__next__)  # every collection takes long
gc.callbacks.append(look)
state = [[number] for number in range(600_000)]
print(most, len(state), gc.get_freeze_count())
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    most, held, frozen = map(int, told.stdout.split())
    assert frozen > held / 2
    assert most < held / 2, "a collection looked at most of what there is"
    assert gc.get_freeze_count() < held, "it was to be frozen there, not here"
