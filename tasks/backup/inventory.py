"""The inventory of a task's backups, for a run's result: those at the first destination, and whether each is proven."""

from typing import Any, Final

from pydantic import ValidationError

from tasks.backup.manifest import NAME, Manifest, begun
from tasks.backup.proofs import read_proofs
from tasks.places.place import Place

INVENTORY_MAX: Final = 50
"""The most backups in an inventory: the newest."""


def inventory(place: Place) -> list[dict[str, Any]]:
    """Return what is known of each backup in the folder `place`, the newest first, as values for JSON.

    Each has the fields `name`, `created`, `finished`, `node`, `bytes`, `stored_bytes`, `remarks` (their number),
    `full` (of an incremental one, the name of the full one it begins at), `needs` (how many it needs before it) and
    `proof`: null, or the `result` and the time (`at`) of the newest drill. Manifests that cannot be read are left out.
    Raises the storage's errors.
    """
    known = {name: by for name in place.folders() if (by := begun(name)) is not None}
    newest = sorted(known, key=lambda name: (known[name].created, known[name].token), reverse=True)[:INVENTORY_MAX]
    texts = place.read_many(f"{name}/{NAME}" for name in newest)
    proofs = read_proofs(place).newest()
    rows = []
    for name in newest:
        try:
            manifest = Manifest.model_validate_json(texts[f"{name}/{NAME}"])
        except (KeyError, ValidationError):
            continue
        proof = proofs.get(name)
        rows.append(
            {
                "name": name,
                "created": manifest.created.isoformat(),
                "finished": manifest.finished.isoformat(),
                "node": manifest.node,
                "bytes": manifest.size_bytes,
                "stored_bytes": manifest.stored_bytes,
                "remarks": len(manifest.remarks),
                "full": manifest.parents[0].name if manifest.parents else None,
                "needs": len(manifest.parents),
                "proof": None if proof is None else {"result": proof.result, "at": proof.finished.isoformat()},
            }
        )
    return rows
