"""Proofs beside backups: written once, the newest counts, old ones go."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.manifest import folder_name, survey_url
from tasks.backup.proofs import (
    FOLDER,
    KEPT_MAX,
    Proof,
    proven_backups,
    read_proofs,
    remove_surplus_proofs,
    write_proof,
)
from tasks.places.place import Place

AT = datetime(2026, 11, 21, 3, tzinfo=UTC)
BACKUP = folder_name(AT, 42)


def proof(token: int, result: Any = "proven", backup: str = BACKUP) -> Proof:
    began = AT + timedelta(hours=token)
    return Proof(
        backup=backup,
        result=result,
        why=() if result == "proven" else ("public.line is missing",),
        drill="orders-drill",
        run_id=f"orders-drill~{token}",
        token=token,
        node="node-2",
        same_member=False,
        began=began,
        finished=began + timedelta(seconds=3),
    )


def test_the_newest_proof_of_a_backup_counts(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    assert (read_proofs(place).proofs, proven_backups(place)) == ((), set())
    url = write_proof(place, proof(50))
    assert url == f"{tmp_path}/{FOLDER}/{BACKUP}.50.json"
    assert proven_backups(place) == {BACKUP}
    write_proof(place, proof(51, "failed"))
    assert proven_backups(place) == set()
    assert read_proofs(place).newest()[BACKUP].why == ("public.line is missing",)
    write_proof(place, proof(52))
    assert proven_backups(place) == {BACKUP}
    assert read_proofs(place).newest()[BACKUP].seconds == 3


def test_a_proof_is_never_written_over(tmp_path: Path) -> None:
    write_proof(Place(str(tmp_path)), proof(50, "failed"))
    with pytest.raises(FileExistsError, match="another cluster"):
        write_proof(Place(str(tmp_path)), proof(50))
    assert proven_backups(Place(str(tmp_path))) == set()


def test_what_is_no_proof_is_told_or_left_alone(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    write_proof(place, proof(50))
    (tmp_path / FOLDER / "README.txt").write_text("of somebody")
    (tmp_path / FOLDER / f"{BACKUP}.51.json").write_text('{"version": 2}')
    found = read_proofs(place)
    assert [one.token for one in found.proofs] == [50]
    assert found.unreadable == (f"{tmp_path}/{FOLDER}/{BACKUP}.51.json is not a proof of version 1",)
    assert remove_surplus_proofs(place, [BACKUP]) == []
    assert (tmp_path / FOLDER / "README.txt").exists()


def test_proofs_of_backups_that_are_gone_go_and_of_many_the_oldest(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    gone = folder_name(AT, 7)
    write_proof(place, proof(8, backup=gone))
    for token in range(50, 50 + KEPT_MAX + 1):
        write_proof(place, proof(token))
    assert remove_surplus_proofs(place, [BACKUP]) == [f"{BACKUP}.50.json", f"{gone}.8.json"]
    assert len(read_proofs(place).proofs) == KEPT_MAX


def test_the_folder_of_proofs_is_no_backup(tmp_path: Path) -> None:
    write_proof(Place(str(tmp_path)), proof(50))
    found = survey_url(str(tmp_path))
    assert (found.complete, found.unreadable) == ((), ())
