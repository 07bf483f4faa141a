"""Shortens a history that went wrong: faults are left out, by halves, then one by one, while it still goes wrong."""

from tests.simulation.history import Told, tell
from tests.simulation.plan import Plan
from tests.simulation.rules import Rules

TRIES = 80


def shortened(plan: Plan, rules: Rules | None = None, tries: int = TRIES) -> tuple[Told, list[int]]:
    """The shortest that was found within `tries`, and which of the plan's faults it has (Zeller's ddmin)."""
    kept = list(range(len(plan.faults)))
    told = tell(plan, rules)
    part = len(kept) // 2
    while part and tries > 0:
        begin = 0
        while begin < len(kept) and tries > 0:
            without = kept[:begin] + kept[begin + part :]
            tries -= 1
            shorter = tell(plan.only(set(without)), rules)
            if shorter.violation is None:
                begin += part
            else:
                kept, told = without, shorter
        part //= 2
    return told, kept


def report(plan: Plan, rules: Rules | None = None, without: str | None = None) -> str:
    """What went wrong, the shortened story, and the one command that tells it again."""
    told, kept = shortened(plan, rules)
    command = f".venv/bin/python -m tests.simulation --seed {plan.seed} --keep={','.join(map(str, kept))}"
    if without is not None:
        command += f" --without {without}"
    faults = "\n".join(f"  {plan.faults[place]}" for place in kept)
    story = "\n".join(f"  {line}" for line in told.story[-40:])
    return (
        f"seed {plan.seed}: {told.violation}\nwith {len(kept)} of {len(plan.faults)} faults:\n{faults}\n"
        f"what happened last:\n{story}\nreplay: {command}\n"
    )
