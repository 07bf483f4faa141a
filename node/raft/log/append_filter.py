"""Finds the new entries of an append_entries message: truncate on conflict only (Ongaro and Ousterhout 2014, 5.3).

PySyncObj 0.3.17 deletes all entries after prevLogIdx, even those that match. So a message that was overtaken or sent
twice would remove acknowledged entries. The library gets only the entries that `trim` returns as new.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Entry = tuple[bytes, int, int]
"""An entry as the library represents it: (command, index, term)."""


class Log(Protocol):
    """A log that is never empty. Its first entry is committed."""

    @property
    def first_index(self) -> int:
        """The index of the first entry."""

    @property
    def last_index(self) -> int:
        """The index of the last entry."""

    def term_at(self, index: int) -> int:
        """Return the term of the entry at an index, from `first_index` to `last_index`."""


@dataclass(frozen=True, slots=True)
class New:
    """Entries to append after (`prev_index`, `prev_term`). Later entries of the log, if any, conflict with them."""

    prev_index: int
    prev_term: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Known:
    """The log has all these entries already: it equals the leader's at least up to `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The entry before the leader's is missing here or has another term, so the leader must send earlier entries."""


class CommittedConflict(Exception):
    """The leader's entries contradict committed ones, which must never happen. The log must stay unchanged."""


def trim(
    log: Log, commit_index: int, prev_index: int, prev_term: int, entries: Sequence[Entry]
) -> New | Known | Unmatched:
    """Find the entries that are new to `log`. `entries` follow (`prev_index`, `prev_term`) in the leader's log.

    Raises CommittedConflict if they contradict an entry at or below `commit_index`.
    """
    if prev_index > log.last_index:
        return Unmatched()
    if prev_index < log.first_index:  # these were compacted, so they are committed and the same in every leader's log
        known = min(log.first_index - prev_index, len(entries))
        entries = entries[known:]
        prev_index += known
        if not entries:
            return Known(prev_index)
        prev_term = log.term_at(prev_index)
    elif log.term_at(prev_index) != prev_term:
        return Unmatched()
    known = 0
    while known < len(entries) and entries[known][1] <= log.last_index:
        if log.term_at(entries[known][1]) != entries[known][2]:
            break
        known += 1
    if known == len(entries):
        return Known(prev_index + known)
    if known:
        _, prev_index, prev_term = entries[known - 1]
    if prev_index < commit_index and prev_index < log.last_index:
        raise CommittedConflict(
            f"the leader has another entry {prev_index + 1} than this log, which is committed up to {commit_index}"
        )
    return New(prev_index, prev_term, entries[known:])
