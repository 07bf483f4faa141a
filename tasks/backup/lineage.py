"""Lineages. A lineage is all backups of one source; `keep` does not count or remove backups of another lineage.

Each backup names its lineage and the identity of its source (`tasks.source_identity`). An attempt compares the identity
of its source with the one in the newest backup. If they differ, the attempt fails before it writes anything, unless its
params accept the source. Backups that are older than this record have no lineage. They are neither counted nor removed,
unless the params accept the source.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tasks.backup.manifest import Manifest, NoBackup, begun, read_manifest
from tasks.places.place import Place
from tasks.source_identity import Facts, OtherSource, describe, differing, identity_id


@dataclass(frozen=True)
class Lineage:
    """The lineage of an attempt's backup. `name` is None if the older backups could not be read.

    `adopts`: a type of source. Backups of this type without an identity belong to the lineage too; None: they do not.
    """

    name: str | None
    adopts: str | None = None

    def holds(self, manifest: Manifest) -> bool:
        """Whether a backup belongs to this lineage."""
        if manifest.lineage is None:
            return self.adopts == manifest.source_type
        return manifest.lineage == self.name


def newest_identified(place: Place) -> Manifest | None:
    """Return the newest backup of a task that names its lineage; manifests that cannot be read are skipped.

    Raises the storage's errors, such as `PermissionError` if this member may write to `place` but not read it.
    """
    names = [(by.created, by.token, name) for name in place.folders() if (by := begun(name)) is not None]
    for _, _, name in sorted(names, reverse=True):
        try:
            manifest = read_manifest(place.inside(name))
        except NoBackup:
            continue
        if manifest is not None and manifest.lineage is not None:
            return manifest
    return None


def continue_lineage(newest: Manifest | None, now: Facts, accepted: Collection[str], node: str) -> Lineage:
    """Return the lineage of a backup of the source with the identity `now`, on the member `node`. Raises `OtherSource`.

    `newest` is the newest backup with an identity, `accepted` are the ids of the sources that the params accept.
    """
    mine = identity_id(now)
    adopts = now["type"] if mine in accepted else None
    if newest is None or newest.identity is None or newest.lineage is None:
        return Lineage(mine, adopts)
    others = differing(newest.identity, now)
    if others and mine not in accepted:
        raise OtherSource(_refusal(newest, newest.identity, now, others, node))
    return Lineage(newest.lineage, adopts)


def _refusal(newest: Manifest, was: Facts, now: Facts, others: Sequence[str], node: str) -> str:
    bind = f"bind the task to the member that has the right source (group: {{node: {newest.node or 'ID'}}})"
    seen = " If both members see the same data there: set `shared: true` on the source." if "node" in others else ""
    return (
        f"this is another source than that of the backups here, so nothing was written or removed. The newest, "
        f"{newest.url}, made on {newest.node}, is of {describe(was, others)}; on {node} the source now is "
        f"{describe(now, others)}. If that is other data: {bind}, or give its backups another destination.{seen} If it "
        f"is the same data, moved or restored: set `accept_source: {identity_id(now)}` in the task's params, which "
        "accepts this source and no other"
    )
