"""Which entries of an append_entries message are new: truncate on conflict only (Ongaro and Ousterhout 2014, 5.3).

PySyncObj 0.3.17 deletes everything after prevLogIdx, matching or not, so that a message that was overtaken, or
sent twice, removes entries that have been acknowledged. The library is given only what `trim` leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Entry = tuple[bytes, int, int]
"""As the library represents entries: (command, index, term)."""


class Log(Protocol):
    """A log that is never empty. Its first entry is committed."""

    @property
    def first_index(self) -> int:
        """The index of the first entry."""

    @property
    def last_index(self) -> int:
        """The index of the last entry."""

    def term_at(self, index: int) -> int:
        """The term of the entry at an index, from `first_index` to `last_index`."""


@dataclass(frozen=True, slots=True)
class New:
    """Entries to be added after (`prev_index`, `prev_term`). What the log holds after that conflicts with them."""

    prev_index: int
    prev_term: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Known:
    """Nothing new: the log equals the leader's up to `index` at least."""

    index: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The entry before these is missing, or of another term: the leader has to send earlier ones."""


class CommittedConflict(Exception):
    """The leader's entries contradict committed ones, which must never happen. The log must not be changed then."""


def trim(
    log: Log, commit_index: int, prev_index: int, prev_term: int, entries: Sequence[Entry]
) -> New | Known | Unmatched:
    """Which of `entries`, which follow (`prev_index`, `prev_term`) in the leader's log, are new to `log`.

    Raises CommittedConflict where they contradict an entry at or below `commit_index`.
    """
    if prev_index > log.last_index:
        return Unmatched()
    if prev_index < log.first_index:  # compacted away: committed, and so the same in every leader's log
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
