"""What a trial leaves: a table, a picture, and the faults with their times, in one folder."""

import json
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bench.chaos.checker.excuses import unexcused_s
from bench.chaos.recovery import recoveries
from bench.chaos.table import table
from bench.chaos.trial import Trial

LEGEND: Final = """Seconds, median / worst, of the faults that came alone. Whole: all members up and ready.
New work elsewhere: the first attempt that began on a node that was not struck.
Taken over: the runs that were at work on those struck, until each went on elsewhere."""


def report(trial: Trial, folder: Path, title: str, left_out: Sequence[str]) -> str:
    """Write it all; the text, for the terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    attempts = list(trial.records.attempts.values())
    text = "\n".join(
        [
            f"# {title}",
            "",
            table(recoveries(trial.struck, attempts, len(trial.cluster.names))),
            LEGEND,
            "",
            *_counts(trial),
            *(f"- left out: {line}" for line in left_out),
            "",
            *(f"VIOLATION {line}" for line in trial.found),
            f"{len(trial.found)} violations",
        ]
    )
    (folder / "report.md").write_text(text + "\n")
    (folder / "faults.json").write_text("[\n" + ",\n".join(json.dumps(one.packed()) for one in trial.struck) + "\n]\n")
    if find_spec("matplotlib") is None:
        return f"{text}\nno picture: matplotlib is not installed (pip install -e '.[bench]')"
    from bench.chaos import timeline

    end_s = max([trial.over_s, *(one.whole_s or one.mended_s for one in trial.struck)])
    timeline.draw(folder / "timeline.png", title, attempts, trial.struck, trial.observer.sights, trial.begun_s, end_s)
    return text


def _counts(trial: Trial) -> list[str]:
    told = trial.clients.promises
    states = Counter(run["state"] for run in trial.runs.values())
    attempts = [attempt for run in trial.runs.values() for attempt in run["attempts"]]
    lost = sum(attempt["state"] == "orphaned" for attempt in attempts)
    lines = [
        f"- {len({one.round for one in trial.struck})} rounds, {len(trial.struck)} faults, in "
        f"{(trial.over_s - trial.begun_s) / 60:.1f} minutes",
        f"- runs: {len(trial.runs)} ({', '.join(f'{count} {state}' for state, count in sorted(states.items()))})",
        f"- attempts seen at work: {len(trial.records.attempts)}, in {trial.records.lines:,} lines; "
        f"lost and taken over or given up: {lost}",
        f"- promised to clients: {len(told.there)} tasks, {len(told.gone)} deletions, counter {told.counted} of "
        f"{told.tried}, {len(told.runs)} runs by hand; unknown: {len(told.perhaps)} tasks",
    ]
    if trial.caretaker.ended:
        ended = Counter(one.node for one in trial.caretaker.ended)
        times = ", ".join(f"{name} {count} times" for name, count in sorted(ended.items()))
        lines.append(f"- ended by themselves, and started again: {times}")
    lines.append(f"- {trial.disk_watch.said()}")
    length_s = trial.over_s - trial.ready_s
    without_s = unexcused_s(trial.ready_s, trial.over_s, trial.excuses.cluster)
    lines.append(f"- excused, because nobody could do what was due: {length_s - without_s:.0f} of {length_s:.0f} s")
    lines += [f"- {line}" for line in trial.verdict.counts()]
    return lines + [f"- log, as expected: {count} x `{pattern}`" for pattern, count in trial.expected.most_common()]
