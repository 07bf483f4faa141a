"""The entry that makes the daily digest of a channel: a notice like others, with figures.

`apply` evaluates no schedule. So the member that sends for the channel names the time of the digest, and the time of
the one before it: a digest that another member has made meanwhile is refused, and each is made once.
"""

from dataclasses import dataclass
from typing import Any, Final

from node.state.bounds import params_bytes
from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.value import Result

FIGURES_BYTES_MAX: Final = 16 * 1024
"""The most bytes of the figures of a digest, packed."""


@dataclass(frozen=True, slots=True)
class MakeDigest(Entry):
    """Add a digest to the notices of a channel. The member that sends for the channel proposes it.

    Refused if the channel's last digest is not of `since_us`.
    """

    #: The channel's name.
    channel: str
    #: The time of the digest before it, or since when the channel has digests, in microseconds since the epoch.
    since_us: int
    #: The time for which it is made, in microseconds since the epoch.
    nominal_us: int
    #: The index of the last entry that it is about; the next digest is about those after it.
    through: int
    #: One line that sums it up.
    text: str
    #: The figures (`node.duty.digests`).
    figures: dict[str, Any]


@applies(MakeDigest, code=45)
def make_digest(draft: Draft, entry: MakeDigest) -> Result:
    """Add a digest to the notices of a channel."""
    row = draft.channels.get(entry.channel)
    if row is None:
        return refused("no-such-channel", f"there is no channel {entry.channel[:200]!r}")
    if not row.digest_us or row.digest_us != entry.since_us or entry.nominal_us == entry.since_us:
        return refused("stale", f"{row.name} has this digest, or makes none")
    if entry.nominal_us <= 0 or not row.digest_index <= entry.through <= draft.index or not entry.text:
        return refused("invalid", "a digest has a time and a text, and is about entries that are applied")
    if params_bytes(entry.figures) > FIGURES_BYTES_MAX:
        return refused("too-large", f"the figures of a digest have {FIGURES_BYTES_MAX} bytes at most")
    row = replace(row, digest_us=entry.nominal_us, digest_index=entry.through)
    draft.channels = draft.channels.set(row.name, row)
    draft.note_digest(row.name, entry.text, entry.figures, entry.at_us)
    return DONE
