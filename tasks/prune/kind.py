"""The kind `backup_prune`: removes old backups, and log, where the tasks that write them may not delete anything."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.backup import retention
from tasks.backup.keep import rules_of
from tasks.backup.lineage import Lineage, newest_identified
from tasks.backup.params import DestinationUrl, Keep, PlaceOptions, place_url
from tasks.definition.spec import NAME_PATTERN, Name
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.place import Place, check_place, place_reach, resolved
from tasks.reach import Reach
from tasks.wal.archive import archived_systems, read_archive
from tasks.wal.sweep import Sweep

RESULT: Final = {
    "url": "the folder of the backups",
    "removed": "the number of old backups and leftovers that were removed",
    "locked": "backups and leftovers that are to go once their lock expires, and when; 100 at most",
    "not_removed": "those that could not be removed, and why; 20 at most",
    "log_removed": "the number of objects of the log that no page names any more and that were removed",
    "unreadable": "the number of backups whose manifest cannot be read; they are neither counted nor removed",
    "others": "the number of backups of another source, or of none; they are neither counted nor removed",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, with their descriptions for docs/reference."""


class PruneParams(BaseModel):
    """Whose backups to remove, and which to keep. This task's secrets may delete; those of the backups' need not."""

    model_config = ConfigDict(extra="forbid")

    backups: str = Field(
        pattern=NAME_PATTERN, description="The name of the task of kind `backup`, whose params have `prune: elsewhere`"
    )
    destination: DestinationUrl = Field(description="Its destination, or one of its `copies`")
    options: PlaceOptions = Field(
        default={}, description="fsspec's options for the destination; secrets are given as references"
    )
    keep: Keep = Field(description="How many backups to keep, or rules; null: all, only leftovers are removed")
    wal: Name | None = Field(
        default=None,
        description="The name of the task of kind `wal` in the same destination, whose params have `lock_days`: what "
        "it no longer needs is removed once its lock expires. null: no log is removed",
    )

    @model_validator(mode="after")
    def _known_options(self) -> "PruneParams":
        check_place(self.destination, self.options)
        return self


class BackupPrune:
    """Removes backups that `keep` does not retain, and what attempts without a backup left. Makes none."""

    Params = PruneParams

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    @staticmethod
    def reaches(params: PruneParams, task: str) -> list[Reach]:
        """Return the path or host that the params name (`tasks.kind.Kind`)."""
        folders = [params.backups] if params.wal is None else [params.backups, params.wal]
        urls = [place_url(params.destination, folder) for folder in folders]
        return [place_reach("destination", url, params.options) for url in urls]

    @staticmethod
    def needs(params: PruneParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`)."""
        reaches = BackupPrune.reaches(params, task)
        return Needs(
            reaches=tuple(reaches),
            network=any(reach.path is None for reach in reaches),
            own_credentials=credential_groups(params.destination, params.options),
        )

    def run(self, ctx: Context[PruneParams]) -> dict[str, Any]:
        """Remove what is to go. Returns the fields of `RESULT`.

        Raises `AccessRefused`, `BadDestination`, `Damaged`, `Fenced`, `MissingSecret`, and the storage's errors.
        """
        began_s = time.monotonic()
        params = ctx.params
        url = place_url(params.destination, params.backups)
        place = Place(url, resolved(params.options, ctx.secret), ctx.access)
        newest = newest_identified(place)
        pruned = retention.Pruned()
        if newest is not None:
            # Raises `Fenced` if another attempt has taken the run over.
            ctx.save_checkpoint({"pruning": url})
            # Tokens grow, so each backup that was begun before this run has a smaller one.
            pruned = retention.prune(
                place, newest.url, ctx.token, Lineage(newest.lineage), rules_of(params.keep), self._now()
            )
        log_removed = 0
        if params.wal is not None:
            log_removed = _sweep_log(Place(place_url(params.destination, params.wal), place.options, ctx.access))
        for why in pruned.failed:
            ctx.log.warning("not removed: %s", why)
        return {
            "url": url,
            "removed": len(pruned.removed),
            "locked": list(pruned.locked[:100]),
            "not_removed": [why[:1000] for why in pruned.failed[:20]],
            "log_removed": log_removed,
            "unreadable": len(pruned.unreadable),
            "others": pruned.others,
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _sweep_log(place: Place) -> int:
    """Remove what no page of an archive names. Returns how many objects were removed. Raises `Damaged`.

    The task that archives may be at work: it writes what comes after the position that is read here first.
    """
    removed = 0
    for system in archived_systems(place):
        archive = place.inside(system)
        counted = read_archive(archive)
        removed += Sweep(archive, counted, counted.holder, everywhere=True).run()
    return removed
