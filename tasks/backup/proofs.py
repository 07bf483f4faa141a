"""Proofs that backups restore: small files beside a task's backups, which drills write (`tasks.drill`).

A proof is `DESTINATION/TASK/proofs/BACKUP.TOKEN.json`. The token is that of the drill's attempt, so no proof is written
over another. Reading proofs needs no cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tasks.backup.manifest import begun
from tasks.places.place import Place

FOLDER: Final = "proofs"
"""The folder of the proofs, beside the folders of the backups."""

KEPT_MAX: Final = 10
"""The most proofs of one backup that stay."""


class Proof(BaseModel):
    """The outcome of one drill: a backup was restored and compared, or it turned out to be spoilt."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    backup: str = Field(description="The name of the backup's folder")
    result: Literal["proven", "failed"]
    why: tuple[str, ...] = Field(default=(), description="What differs or fails, by name; empty if proven")
    how: tuple[str, ...] = Field(default=(), description="What was done and compared")
    place: str = Field(default="", description="The folder from which the backup was read; empty: the one it lies in")
    drill: str = Field(description="The name of the drill's task")
    run_id: str
    token: int
    node: str = Field(description="The member that restored the backup")
    same_member: bool = Field(description="Whether that member had made the backup, too")
    began: AwareDatetime
    finished: AwareDatetime
    tables: int = Field(default=0, description="The number of tables that were read")
    rows: int = Field(default=0, description="The number of rows in them")
    checks: int = Field(default=0, description="The number of checks of the user that held")
    restored_bytes: int = Field(default=0, description="The size of the content that was restored")

    @property
    def seconds(self) -> float:
        """How long the drill took."""
        return (self.finished - self.began).total_seconds()

    @property
    def name(self) -> str:
        """The name of the proof's file."""
        return f"{self.backup}.{self.token}.json"


@dataclass(frozen=True)
class ProofsFound:
    """The proofs of a task's backups, the oldest first, and a sentence for each that cannot be read."""

    proofs: tuple[Proof, ...] = ()
    unreadable: tuple[str, ...] = ()

    def newest(self) -> Mapping[str, Proof]:
        """Return the newest proof of each backup, by the name of the backup's folder."""
        return {proof.backup: proof for proof in self.proofs}

    def proven(self) -> set[str]:
        """Return the names of the backups whose newest drill has proven that they restore."""
        return {name for name, proof in self.newest().items() if proof.result == "proven"}


def write_proof(place: Place, proof: Proof) -> str:
    """Write a proof into the folder of a task's backups. Returns its URL. Raises `FileExistsError`."""
    name = f"{FOLDER}/{proof.name}"
    if not place.write_new(name, proof.model_dump_json(indent=1).encode()):
        raise FileExistsError(f"{place.url}/{name} exists already: another cluster drills the same backups")
    return f"{place.url}/{name}"


def read_proofs(place: Place) -> ProofsFound:
    """Read the proofs beside the backups in the folder `place`."""
    names = [name for name in place.names(FOLDER) if _of_backup(name) is not None]
    proofs, unreadable = [], []
    for path, text in place.read_many(f"{FOLDER}/{name}" for name in names).items():
        try:
            proof = Proof.model_validate_json(text)
        except ValidationError:
            unreadable.append(f"{place.url}/{path} is not a proof of version 1")
        else:
            proofs.append(proof)
    proofs.sort(key=lambda proof: (proof.finished, proof.token))
    return ProofsFound(tuple(proofs), tuple(unreadable))


def proven_backups(place: Place) -> set[str]:
    """Return the names of the backups in the folder `place` whose newest drill has proven that they restore."""
    return read_proofs(place).proven()


def last_proven(place: Place, backups: Iterable[str]) -> str | None:
    """Return that of `backups`, by the names of their folders, which is the newest proven one; None: none is."""
    return max(proven_backups(place).intersection(backups), default=None)


def surplus_proofs(names: Iterable[str], backups: Iterable[str]) -> list[str]:
    """Return the names of proofs that can go: of backups that are gone, and all but the newest of each backup.

    >>> backup = "20261121T030000.000000Z-42"
    >>> names = [f"{backup}.{token}.json" for token in range(50, 62)] + ["20251121T030000.000000Z-7.8.json", "notes"]
    >>> surplus_proofs(names, [backup])
    ['20251121T030000.000000Z-7.8.json', '20261121T030000.000000Z-42.50.json', '20261121T030000.000000Z-42.51.json']
    """
    there = set(backups)
    by_backup: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if (found := _of_backup(name)) is not None:
            by_backup.setdefault(found[0], []).append((found[1], name))
    going = []
    for backup, proofs in by_backup.items():
        kept = KEPT_MAX if backup in there else 0
        going += [name for _, name in sorted(proofs)[: max(0, len(proofs) - kept)]]
    return sorted(going)


def remove_surplus_proofs(place: Place, backups: Iterable[str]) -> list[str]:
    """Remove the proofs that `surplus_proofs` names. Returns the names of the removed ones. Raises storage errors."""
    going = surplus_proofs(place.names(FOLDER), backups)
    for name in going:
        place.remove(f"{FOLDER}/{name}")
    return going


def _of_backup(name: str) -> tuple[str, int] | None:
    """Return the name of the backup and the token in the name of a proof's file; None if it is no such name."""
    stem, _, suffix = name.rpartition(".")
    backup, _, token = stem.rpartition(".")
    if suffix != "json" or not token.isdecimal() or begun(backup) is None:
        return None
    return backup, int(token)
