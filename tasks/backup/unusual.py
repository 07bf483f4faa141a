"""Says what is unusual of a backup beside the ones before it: its size, its rows, how long it took (pure).

A dump of a database that was emptied by mistake is a good backup of nothing: no checksum tells. A jump does.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from tasks.backup.manifest import Manifest, TableFacts

BEFORE_MAX: Final = 10
"""With how many earlier backups one is compared."""

BEFORE_MIN: Final = 4
"""With fewer earlier backups, nothing is known of what is usual."""

_NAMED_MAX: Final = 5


def _rows(backup: Manifest) -> float | None:
    tables = _tables(backup)
    return None if tables is None else sum(table.rows for table in tables.values())


_MEASURES: Final[Mapping[str, tuple[Callable[[Manifest], float | None], float, str]]] = {
    "content of": (lambda backup: backup.size_bytes, 1 << 20, " bytes"),
    "tables with": (_rows, 1000, " rows"),
    "it took": (lambda backup: (backup.finished - backup.created).total_seconds(), 300, " s"),
}
"""For each measure, by the words before its value: the value, the least difference that matters, and the unit."""


def unusual(made: Manifest, before: Sequence[Manifest]) -> list[str]:
    """Return a sentence for each measure of a backup that is far from those of the backups `before`, newest first.

    Far is: more than half as much again or less than half as much as their median, beyond five times their median
    deviation from it, and by an amount that matters. Tables that had rows in the newest one, and now have none, are
    named.
    """
    said = []
    for words, (measure, least, unit) in _MEASURES.items():
        now = measure(made)
        values = [value for each in before[:BEFORE_MAX] if (value := measure(each)) is not None]
        if now is None or len(values) < BEFORE_MIN:
            continue
        middle = median(values)
        spread = median(abs(value - middle) for value in values)
        if abs(now - middle) > max(5 * spread, middle / 2, least):
            said.append(f"{words} {now:,.0f}{unit}; the median of the {len(values)} backups before is {middle:,.0f}")
    return said + _emptied(made, before)


def _emptied(made: Manifest, before: Sequence[Manifest]) -> list[str]:
    now, was = _tables(made), _tables(before[0]) if before else None
    if now is None or was is None:
        return []
    gone = [name for name, table in was.items() if table.rows and (name not in now or not now[name].rows)]
    if not gone:
        return []
    more = f" and {len(gone) - _NAMED_MAX} more" if len(gone) > _NAMED_MAX else ""
    return [f"no rows in {', '.join(sorted(gone)[:_NAMED_MAX])}{more}, which had some in the backup before"]


def _tables(backup: Manifest) -> dict[str, TableFacts] | None:
    """The tables of a backup by name; None if its manifest does not say them, or says them to those with a key only."""
    files = [file for file in backup.files if file.database is not None or len(backup.files) == 1]
    if not files or any(file.tables is None for file in files):
        return None
    databases = {file.database.name if file.database else file.name for file in files}
    return {
        (f"{file.database.name if file.database else file.name}: " if len(databases) > 1 else "")
        + f"{table.schema_name}.{table.name}": table
        for file in files
        for table in file.tables or ()
    }
