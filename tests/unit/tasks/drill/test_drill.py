"""The kind `drill` without a server: which backup it takes, what it proves of files, what it writes."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node.execution.confining import capabilities
from tasks.backup.archive import Damaged
from tasks.backup.encryption import new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import NAME, NoBackup, survey
from tasks.backup.proofs import FOLDER, Proof, proven_backups, read_proofs
from tasks.backup.tree import read_tree
from tasks.drill.kind import Drill, DrillFailed, misplaced, pick
from tasks.drill.params import DrillCheck, DrillParams
from tasks.drill.watch import DrillBounds, DrillStopped
from tasks.kind import Fenced
from tasks.places.place import Place
from testkit.fake_context import FakeContext
from tests.unit.tasks.backup.backups import backup_context, fill


def drill_context(tmp_path: Path, token: int = 50, **params: Any) -> FakeContext[DrillParams]:
    scratch = tmp_path / f"drill-{token}"
    scratch.mkdir()
    given = {"backups": {"url": str(tmp_path / "to" / "nightly")}}
    return FakeContext(
        DrillParams.model_validate(given | params), scratch, task="proving", token=token, run_id=f"proving~{token}"
    )


def backed_up(tmp_path: Path, token: int = 1, **params: Any) -> str:
    if not (tmp_path / "from").exists():
        fill(tmp_path / "from")
    return str(Backup().run(backup_context(tmp_path, token, **params))["url"])


def the_proof(tmp_path: Path) -> Proof:
    (proof,) = read_proofs(Place(str(tmp_path / "to" / "nightly"))).proofs
    return proof


def sqlite_params(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE line (id INTEGER PRIMARY KEY, text TEXT); CREATE INDEX i ON line (text);")
        database.executemany("INSERT INTO line (text) VALUES (?)", [(f"row {n}",) for n in range(500)])
        database.commit()
    return {"source": {"type": "sqlite", "path": str(path)}}


def test_a_folder_that_restores_is_proven(tmp_path: Path) -> None:
    url = backed_up(tmp_path)
    result = Drill().run(drill_context(tmp_path))
    assert (result["backup"], result["same_member"]) == (url, True)
    assert result["how"] == ["restored, and 9 entries compared with the archive's list: type, size and mode"]
    proof = the_proof(tmp_path)
    assert (proof.result, proof.drill, proof.node, proof.why) == ("proven", "proving", "node-1", ())
    assert f"{url.rpartition('/')[0]}/{FOLDER}/{proof.name}" == result["proof"]
    assert proven_backups(Place(str(tmp_path / "to" / "nightly"))) == {url.rpartition("/")[2]}


def test_a_flipped_byte_fails_the_drill_and_leaves_a_proof_of_that(tmp_path: Path) -> None:
    stored = Path(backed_up(tmp_path)) / "folder.tar.zst"
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)
    with pytest.raises(DrillFailed, match=r"is not proven: .*folder\.tar\.zst"):
        Drill().run(drill_context(tmp_path))
    assert the_proof(tmp_path).result == "failed"
    assert "folder.tar.zst" in the_proof(tmp_path).why[0]
    assert proven_backups(Place(str(tmp_path / "to" / "nightly"))) == set()


def test_a_folder_in_packs_is_proven_and_the_index_of_a_pack_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", 3)
    index = sorted(Path(backed_up(tmp_path)).glob("pack-*.index.zst"))[-1]
    assert Drill().run(drill_context(tmp_path))["how"][0].startswith("restored, and 12 entries")
    content = bytearray(index.read_bytes())
    content[len(content) // 2] ^= 1
    index.write_bytes(content)
    with pytest.raises(DrillFailed, match=index.name):
        Drill().run(drill_context(tmp_path, 51))


def test_sqlite_is_checked_counted_and_asked(tmp_path: Path) -> None:
    backed_up(tmp_path, **sqlite_params(tmp_path))
    checks = [
        {"sql": "SELECT count(*) FROM line", "expect": 500},
        {"sql": "SELECT id, text FROM line WHERE id < 3", "expect": "1|row 0\n2|row 1"},
    ]
    result = Drill().run(drill_context(tmp_path, checks=checks))
    assert (result["tables"], result["rows"], result["checks"]) == (1, 500, 2)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(*) FROM line", "gives 500; expected: 501"),
        ("SELECT id FROM line WHERE id = 0", "gives no row; expected: 501"),
        ("SELECT missing", "fails: no such column"),
        ("DELETE FROM line RETURNING id", "fails: not authorized"),
        ("ATTACH '/etc/passwd' AS other", "fails: not authorized"),
    ],
)
def test_a_check_that_does_not_hold_fails_the_drill(tmp_path: Path, sql: str, why: str) -> None:
    backed_up(tmp_path, **sqlite_params(tmp_path))
    with pytest.raises(DrillFailed, match=why):
        Drill().run(drill_context(tmp_path, checks=[{"sql": sql, "expect": 501}]))


def test_checks_need_a_database(tmp_path: Path) -> None:
    backed_up(tmp_path)
    with pytest.raises(DrillFailed, match="the backup of a folder has no database"):
        Drill().run(drill_context(tmp_path, checks=[{"sql": "SELECT 1", "expect": 1}]))


def test_the_newest_is_taken_and_an_unreadable_newest_one_fails(tmp_path: Path) -> None:
    backed_up(tmp_path)
    second = backed_up(tmp_path, 2)
    assert Drill().run(drill_context(tmp_path))["backup"] == second
    (Path(second) / NAME).write_text("{")
    with pytest.raises(DrillFailed, match="is not a manifest of version 1"):
        Drill().run(drill_context(tmp_path, 51))
    found = read_proofs(Place(str(tmp_path / "to" / "nightly"))).newest()[second.rpartition("/")[2]]
    assert found.result == "failed"


def test_drawn_is_the_same_for_each_attempt_at_a_run(tmp_path: Path) -> None:
    urls = {backed_up(tmp_path, token) for token in range(1, 6)}
    found = survey(Place(str(tmp_path / "to" / "nightly")))

    def drawn(run_id: str) -> str:
        backup = pick(found, "", "drawn", run_id)
        assert not isinstance(backup, str)
        return backup.url

    assert drawn("a") == drawn("a")
    assert {drawn(f"run {number}") for number in range(60)} == urls


def test_another_tasks_manifest_is_no_backup_of_this_one(tmp_path: Path) -> None:
    url = backed_up(tmp_path)
    other = Path(Backup().run(backup_context_of(tmp_path, "other"))["url"])
    (other / NAME).replace(Path(url) / NAME)
    with pytest.raises(DrillFailed, match="its manifest is of the task other, not of nightly"):
        Drill().run(drill_context(tmp_path))
    again = backed_up(tmp_path, 3)
    (backup,) = survey(Place(str(tmp_path / "to" / "nightly")), [again.rpartition("/")[2]]).complete
    assert misplaced(backup, "nightly") == ""
    moved = backup.model_copy(update={"token": 4})
    assert "its manifest is of the backup" in misplaced(moved, "nightly")


def backup_context_of(tmp_path: Path, task: str) -> Any:
    context = backup_context(tmp_path, 2)
    context.task = task
    return context


def test_what_says_nothing_about_the_backup_writes_no_proof(tmp_path: Path) -> None:
    with pytest.raises(NoBackup, match="holds no backup"):
        Drill().run(drill_context(tmp_path))
    url = backed_up(tmp_path)
    with pytest.raises(DrillBounds, match="max_bytes allows 1,048,576"):
        (tmp_path / "from" / "big").write_bytes(bytes(2 << 20))
        backed_up(tmp_path, 2)
        Drill().run(drill_context(tmp_path, 51, max_bytes=1 << 20))
    stopped = drill_context(tmp_path, 52)
    stopped.cancelled = True
    with pytest.raises(DrillStopped):
        Drill().run(stopped)
    fenced = drill_context(tmp_path, 53)

    def refuse(value: Any) -> None:
        raise Fenced("another attempt")

    fenced.before_checkpoint = refuse
    with pytest.raises(Fenced):
        Drill().run(fenced)
    assert read_proofs(Place(url.rpartition("/")[0])).proofs == ()
    assert Damaged not in DrillBounds.__mro__


@pytest.mark.parametrize("sql", ["\\! id", "  \\copy x to y", "", " ", "a\0b"])
def test_a_check_is_a_query_and_no_command_of_psql(sql: str) -> None:
    with pytest.raises(ValidationError):
        DrillCheck(sql=sql, expect=1)


def test_of_an_encrypted_backup_only_the_run_says_what_differs(tmp_path: Path) -> None:
    pytest.importorskip("pyrage")
    recipient, identity = new_identity(None)
    backed_up(tmp_path, encryption={"recipients": [recipient]}, **sqlite_params(tmp_path))
    with pytest.raises(DrillFailed, match="give the identity of one of these recipients"):
        Drill().run(drill_context(tmp_path))
    checks = [{"sql": "SELECT count(*) FROM line", "expect": 501}]
    keyed = drill_context(tmp_path, 51, identity={"secret": "key"}, checks=checks)
    keyed.secrets = {"key": identity}
    with pytest.raises(DrillFailed, match="FROM line gives 500; expected: 501"):
        Drill().run(keyed)
    proofs = read_proofs(Place(str(tmp_path / "to" / "nightly"))).proofs
    assert [proof.result for proof in proofs] == ["failed", "failed"]
    assert not any("line" in text for proof in proofs for text in (*proof.why, *proof.how))
    assert {(proof.tables, proof.rows) for proof in proofs} == {(0, 0)}


def test_root_keeps_the_rights_to_run_a_server_as_nobody() -> None:
    params = DrillParams.model_validate({"backups": {"url": "s3://backups/orders"}})
    needs = Drill.needs(params, "proving")
    assert needs.server_user
    assert needs.own_credentials == ("s3",)
    assert {"SETUID", "SETGID", "CHOWN"} <= capabilities(needs.reaches, server_user=True)
    assert "SETUID" not in capabilities(needs.reaches)


def with_copy(tmp_path: Path) -> tuple[str, str, dict[str, Any]]:
    """The folder of the backups, that of their copies, and the params of a drill of both."""
    first, second = str(tmp_path / "to"), str(tmp_path / "far")
    backed_up(tmp_path, copies=[{"destination": second}])
    return f"{first}/nightly", f"{second}/nightly", {"copies": [{"url": f"{second}/nightly"}]}


def test_a_backup_is_read_where_it_is_whole_and_the_proof_told_everywhere(tmp_path: Path) -> None:
    first, second, params = with_copy(tmp_path)
    result = Drill().run(drill_context(tmp_path, **params))
    assert result["degraded"] is None
    assert result["backup"].startswith(first)
    [proof] = read_proofs(Place(second)).proofs
    assert (proof.place, proof.result) == (first, "proven")
    next(Path(first).glob("2*/*.zst")).unlink()
    result = Drill().run(drill_context(tmp_path, 51, **params))
    assert result["backup"].startswith(second)
    assert "lacks folder.tar.zst" in result["degraded"]
    assert result["how"][0].startswith("not read: ")
    Path(first).rename(tmp_path / "away")
    result = Drill().run(drill_context(tmp_path, 52, **params))
    assert result["backup"].startswith(second)
    assert "holds no backup" in result["degraded"]


def test_a_drawn_folder_is_read_even_if_it_is_spoilt_and_only_there_is_that_told(tmp_path: Path) -> None:
    first, second, params = with_copy(tmp_path)
    next(Path(second).glob("2*/*.zst")).unlink()
    read = set()
    for token in range(50, 70):
        try:
            read.add(Drill().run(drill_context(tmp_path, token, read_from="drawn", **params))["backup"])
        except DrillFailed as error:
            assert second in str(error)
    assert {proof.result for proof in read_proofs(Place(first)).proofs} == {"proven"}
    assert {proof.result for proof in read_proofs(Place(second)).proofs} == {"proven", "failed"}
    assert len(read) == 1
