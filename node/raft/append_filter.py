"""What of an append_entries message is new: truncate on conflict only (Ongaro and Ousterhout 2014, section 5.3).

PySyncObj 0.3.17 deletes everything after prevLogIdx, matching or not, so that a message that was overtaken, or
sent twice, removes entries that have been acknowledged. Its receiver is given only what `trim` leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Entry = tuple[bytes, int, int]
"""As the library has them: (command, index, term)."""


class Log(Protocol):
    """A log that is never empty; it begins at `first_index`, and that entry is committed."""

    @property
    def first_index(self) -> int:
        """The index of the first entry there."""

    @property
    def last_index(self) -> int:
        """The index of the last entry there."""

    def term_at(self, index: int) -> int:
        """The term of the entry at an index between the two."""


@dataclass(frozen=True, slots=True)
class New:
    """Entries to be added after (`prev_index`, `prev_term`); what the log holds after that is in conflict with them."""

    prev_index: int
    prev_term: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Known:
    """Nothing new: the log is the leader's, up to `index` at least."""

    index: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """What precedes the entries is not there, or is of another term: the leader has to go back."""


class CommittedConflict(Exception):
    """The leader's entries contradict committed ones. It must never happen; nothing may be changed then."""


def trim(
    log: Log, commit_index: int, prev_index: int, prev_term: int, entries: Sequence[Entry]
) -> New | Known | Unmatched:
    """What of `entries`, which follow (`prev_index`, `prev_term`) in the leader's log, is new to `log`.

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
            f"entry {prev_index + 1} is committed here up to {commit_index}, and the leader has another in its place"
        )
    return New(prev_index, prev_term, entries[known:])
