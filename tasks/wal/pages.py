"""Pages: small numbered files that list the valid objects of an archive, and say which attempt may add to it (pure).

Several attempts may write objects at the same time, since a frozen attempt may finish an upload later. So an object is
valid (it *counts*) only if a page names it, not because it exists. Pages have consecutive numbers, and each is created
by a conditional write: if several writers try one number, one succeeds, and the others must read its page before they
try again. An attempt begins with a page that claims the archive for its token. From then on, only pages with this token
count, until a page claims the archive for a greater token. So at any moment only one writer's pages count, and a reader
needs neither a clock nor the cluster.
"""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from tasks.backup.manifest import EncryptionNote, FileEntry


class StoredWal(BaseModel):
    """An object of the archive: a whole segment, a piece of one, or a history file."""

    model_config = ConfigDict(frozen=True)

    type: Literal["segment", "piece", "history"]
    timeline: int
    start: int = Field(description="The LSN of its first byte; 0 for a history file")
    end: int = Field(description="The LSN after its last byte; 0 for a history file")
    file: FileEntry
    ancestors: tuple[tuple[int, int], ...] | None = Field(
        default=None, description="Of a history file: the timelines before it, each with the LSN at which it ends"
    )


class WalGap(BaseModel):
    """A range of the log that the server had removed before it was archived."""

    model_config = ConfigDict(frozen=True)

    timeline: int
    start: int
    end: int
    since: AwareDatetime | None = Field(
        default=None, description="When the log up to its start was archived; null: recorded before this was known"
    )


class KeptRange(BaseModel):
    """A range of the log that a backup from before the removed log needs."""

    model_config = ConfigDict(frozen=True)

    timeline: int
    start: int
    end: int

    def touches(self, timeline: int, start: int, end: int) -> bool:
        """Whether it has a byte in common with another range."""
        return self.timeline == timeline and self.start < end and start < self.end


class WalChapter(BaseModel):
    """Whole segments of one timeline, one after the other. Their entries are in an object of their own.

    So an index does not grow with each segment, and neither does what a reader keeps in memory.
    """

    model_config = ConfigDict(frozen=True)

    timeline: int
    start: int
    end: int
    file: FileEntry = Field(description="The object with the segments' entries, those of removed segments too")


class ChapterContent(BaseModel):
    """The content of a chapter's object."""

    version: Literal[1] = 1
    segments: tuple[StoredWal, ...]


class WalEnd(BaseModel):
    """A position, as pages have it."""

    model_config = ConfigDict(frozen=True)

    timeline: int
    lsn: int


class WalPage(BaseModel):
    """One page: a claim, or objects that count from this page on."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    number: int
    token: int = Field(description="The fencing token of the attempt that wrote it")
    node: str = Field(description="The member on which that attempt ran")
    at: AwareDatetime
    segment_bytes: int = Field(description="The server's size of a segment")
    claim: bool = Field(default=False, description="Whether it claims the archive for its token")
    objects: tuple[StoredWal, ...] = ()
    gap: WalGap | None = None
    removed: WalEnd | None = Field(
        default=None, description="Objects that end at or before this position do not count from this page on"
    )
    chapter: WalChapter | None = Field(default=None, description="Segments that are listed in an object from now on")
    encryption: EncryptionNote | None = Field(
        default=None, description="Of a claim: to whom segments, pieces and history files are encrypted from now on"
    )
    cluster: str = Field(default="", description="Of a claim: the cluster of the attempt; empty: not recorded")
    base: int = Field(
        default=0, description="Of a claim: what is added to the tokens of its cluster, which took over from another"
    )
    kept: tuple[KeptRange, ...] = Field(
        default=(), description="Beside `removed`: ranges before it whose objects count still"
    )
    index: FileEntry | None = Field(
        default=None, description="An object that says what counted before this page, so that no earlier page is needed"
    )
    indexed: int = Field(default=0, description="The number of the newest page with an index, before this one; 0: none")


class WalIndex(BaseModel):
    """All objects of an archive that count up to a page, and with it."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    number: int
    holder: int
    indexed: int
    segment_bytes: int
    objects: tuple[StoredWal, ...] = Field(description="All but the segments in chapters")
    chapters: tuple[WalChapter, ...] = ()
    encryption: EncryptionNote | None = None
    cluster: str = ""
    base: int = 0
    gaps: tuple[WalGap, ...]
    removed: WalEnd | None = None
    timeline: int = Field(description="Of the position; 0: nothing is archived")
    lsn: int = Field(description="Of the position")
    position_at: AwareDatetime | None
