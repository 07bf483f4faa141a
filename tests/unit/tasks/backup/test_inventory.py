"""The inventory in a run's result: which backups are there, and which are proven."""

from pathlib import Path

from tasks.backup.inventory import INVENTORY_MAX, inventory
from tasks.backup.kind import Backup
from tasks.backup.proofs import Proof, write_proof
from tasks.places.place import Place
from tests.unit.tasks.backup.backups import backup_context, fill


def test_a_result_lists_the_backups_that_are_there(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    place = Place(str(tmp_path / "to" / "nightly"))
    first = Backup().run(backup_context(tmp_path, 1, keep=2))["backups"]
    assert [row["bytes"] > 0 for row in first] == [True]
    name = first[0]["name"]
    begun = first[0]["created"]
    about = {"drill": "prove", "run_id": "prove~1", "token": 9, "node": "node-2", "same_member": False}
    proof = Proof.model_validate(about | {"backup": name, "result": "proven", "began": begun, "finished": begun})
    write_proof(place, proof)
    (tmp_path / "to" / "nightly" / "20200101T000000.000000Z-1").mkdir()
    second = Backup().run(backup_context(tmp_path, 2, keep=2))["backups"]
    assert [row["name"] for row in second][1:] == [name]
    assert [row["proof"] and row["proof"]["result"] for row in second] == [None, "proven"]
    third = Backup().run(backup_context(tmp_path, 3, keep=1))["backups"]
    assert len(third) in {1, 2}, "one that is proven may stay beside the newest"


def test_an_inventory_has_the_newest_backups(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    made = Backup().run(backup_context(tmp_path, 1))["url"].rpartition("/")[2]
    folder = tmp_path / "to" / "nightly"
    text = (folder / made / "manifest.json").read_text()
    for number in range(INVENTORY_MAX + 5):
        older = folder / f"20200101T000000.{number:06d}Z-1"
        older.mkdir()
        (older / "manifest.json").write_text("{" if number == INVENTORY_MAX else text)
    rows = inventory(Place(str(folder)))
    assert rows[0]["name"] == made
    assert len(rows) == INVENTORY_MAX - 1, "the manifest that cannot be read is left out"
