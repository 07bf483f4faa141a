"""The table of faults that a trial ends with."""

from collections.abc import Mapping, Sequence

from bench.chaos.recovery import Recovery, middle_and_worst

HEAD = (
    "fault",
    "alone",
    "with another",
    "mended -> whole",
    "struck -> whole",
    "struck -> new work elsewhere",
    "struck -> taken over (runs)",
)


def table(by_kind: Mapping[str, Recovery]) -> str:
    """Markdown. Times are median / worst in seconds, of the faults that came alone."""
    rows: list[tuple[str, ...]] = [
        (
            kind,
            str(each.alone),
            str(each.in_company),
            middle_and_worst(each.mended_to_whole_s),
            middle_and_worst(each.struck_to_whole_s),
            middle_and_worst(each.struck_to_work_s),
            middle_and_worst(each.struck_to_taken_over_s)
            + (f" ({len(each.struck_to_taken_over_s)})" if each.struck_to_taken_over_s else ""),
        )
        for kind, each in by_kind.items()
    ]
    total = ("all", str(sum(e.alone for e in by_kind.values())), str(sum(e.in_company for e in by_kind.values())))
    times = (
        [each.mended_to_whole_s for each in by_kind.values()],
        [each.struck_to_whole_s for each in by_kind.values()],
        [each.struck_to_work_s for each in by_kind.values()],
        [each.struck_to_taken_over_s for each in by_kind.values()],
    )
    rows.append((*total, *(middle_and_worst([one for each in kind for one in each]) for kind in times)))
    return aligned([HEAD, *rows])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well as text too; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"
