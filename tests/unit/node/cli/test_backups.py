"""`rota backup` where the backups of a task are on another machine's disk."""

import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from node.cli.backup_access import NamedByCaller, _backup_keys, task_places
from node.cli.backups import _keep_rules, key_command
from tasks.backup.encryption import Identities, new_identity
from tasks.backup.finding import TaskPlace, find_backups
from tasks.backup.keep import KeepRules
from tasks.backup.kind import Backup
from tasks.errors import MissingSecret
from tests.unit.tasks.backup.backups import backup_context, fill

NOTHING = NamedByCaller({}, (), (), {})


class Asked:
    """Stands in for `node.cli.api.Api`: a cluster with one task, and its latest run that succeeded, if there is one."""

    def __init__(self, destination: Path | str, made: str | None, **options: Any) -> None:
        self._task = {"kind": "backup", "params": {"destination": str(destination), "options": options}}
        self._runs = [] if made is None else [{"node": "node-2", "result": {"url": made}, "finished_at": None}]
        self.client = self

    def get(self, where: str, **query: Any) -> dict[str, Any]:
        if where == "/v1/runs":
            assert (query["task"], query["state"]) == ("nightly", "succeeded")
            return {"items": self._runs}
        assert where == "/v1/tasks/nightly"
        return self._task


def test_backups_on_another_machine_s_disk_are_reported_with_their_node(tmp_path: Path) -> None:
    made = f"{tmp_path}/b/nightly/20261122-1"
    with pytest.raises(click.ClickException) as raised:
        task_places(Asked(tmp_path / "b", made), "nightly", NOTHING)  # type: ignore[arg-type]
    assert f"node-2 has written {made}" in raised.value.message
    assert "Run this command on node-2, or mount the folder here" in raised.value.message


def test_without_a_successful_run_no_other_node_is_named(tmp_path: Path) -> None:
    [(url, options)] = task_places(Asked(tmp_path / "b", None), "nightly", NOTHING)  # type: ignore[arg-type]
    assert (url, options) == (f"{tmp_path}/b/nightly", {})


def test_a_folder_that_is_here_is_read_here(tmp_path: Path) -> None:
    (tmp_path / "b" / "nightly").mkdir(parents=True)
    [(url, _)] = task_places(Asked(tmp_path / "b", "elsewhere"), "nightly", NOTHING)  # type: ignore[arg-type]
    assert url == f"{tmp_path}/b/nightly"


AUTHORS = {"key": {"env": "AWS_KEY"}, "secret": {"secret": "s3_key"}, "endpoint_url": "http://author.example"}


def _of_author(named: NamedByCaller, destination: str = "s3://b", options: dict[str, Any] = AUTHORS) -> TaskPlace:
    [place] = task_places(Asked(destination, None, **options), "nightly", named)  # type: ignore[arg-type]
    return place


def test_what_a_definition_refers_to_is_read_and_sent_only_where_the_caller_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_KEY", "the operator's own")
    monkeypatch.setenv("ROTA_SECRETS_DIR", str(tmp_path))
    file = tmp_path / "s3_key"
    file.write_text("of the operator, too")
    at, env, secrets = ("author.example:80",), ("AWS_KEY",), {"s3_key": file}
    for named, wanted in (
        (NOTHING, "--host author.example:80 --env AWS_KEY --secret s3_key=FILE"),
        (NamedByCaller(secrets, env, (), {}), "--host author.example:80"),
        (NamedByCaller(secrets, env, ("s3://b", "other.example"), {}), "--host author.example:80"),
        (NamedByCaller({}, env, at, {}), "--secret s3_key=FILE"),
        (NamedByCaller(secrets, ("OTHER",), at, {}), "--env AWS_KEY"),
        (NamedByCaller({"other": file}, ("s3_key",), at, {}), "--env AWS_KEY --secret s3_key=FILE"),
    ):
        with pytest.raises(click.UsageError) as refused:
            _of_author(named)
        assert refused.value.message.endswith(f"To allow this, add: {wanted}")
        assert "s3://b/nightly, on author.example:80" in refused.value.message
        assert "operator" not in refused.value.message
    url, options = _of_author(NamedByCaller(secrets, env, at, {}))
    assert (url, options["key"], options["secret"]) == ("s3://b/nightly", "the operator's own", "of the operator, too")


@pytest.mark.parametrize(
    ("destination", "options", "says"),
    [
        # What fsspec finds by itself (keys in ~/.aws, ~/.ssh, variables) goes to the host that the definition names.
        ("s3://b", {"anon": False}, "--host s3://b"),
        ("sftp://author.example/x", {"username": "u"}, "--host author.example:22"),
        ("abfs://c@acct.dfs.core.windows.net/x", {"account_key": {"env": "K"}}, "--env K"),
        ("http://author.example/x", {}, "--host author.example:80"),
        ("sftp://author.example/x", {"key_filename": "/root/.ssh/id_rsa"}, "cannot be set by a task"),
        ("s3://b", {"profile": "default"}, "cannot be set by a task"),
        ("s3://b", {"endpoint_url": {"env": "HOME"}, "key": "k"}, "--env HOME"),
        ("gs://b", {"token": "/root/key.json"}, "other values name a file"),
        ("simplecache::s3://b", {}, "chains file systems"),
        ("github://o:r@main/x", {}, "is not a file system that a task may name"),
        ("/b", {"auto_mkdir": {"env": "HOME"}}, "--env HOME"),
    ],
)
def test_other_ways_for_a_definition_to_reach_this_machine_are_refused(
    destination: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises((click.UsageError, ValueError), match=says.replace("*", r"\*")):
        _of_author(NOTHING, destination, options)


def test_an_address_that_a_secret_holds_must_be_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "http://author.example:9000")
    options = {"endpoint_url": {"env": "WHERE"}}
    with pytest.raises(click.UsageError, match=r"--host author\.example:9000"):
        _of_author(NamedByCaller({}, ("WHERE",), ("s3://b",), {}), options=options)
    assert _of_author(NamedByCaller({}, ("WHERE",), ("author.example",), {}), options=options)[0] == "s3://b/nightly"


def test_a_short_or_absent_file_is_refused(tmp_path: Path) -> None:
    for name, says in (("short", "fewer than 6"), ("absent", "No such file")):
        (tmp_path / "short").write_text("abc")
        with pytest.raises(MissingSecret, match=says):
            _of_author(NamedByCaller({"k": tmp_path / name}, (), ("s3://b",), {}), options={"key": {"secret": "k"}})


@pytest.fixture
def three_places(tmp_path: Path) -> dict[str, Any]:
    """A task with three destinations, the first of which has lost its newest backup's file."""
    fill(tmp_path / "from")
    copies: list[dict[str, Any]] = [{"destination": str(tmp_path / name)} for name in ("near", "far")]
    for token in (1, 2):
        context = backup_context(tmp_path, token, copies=copies)
        context.attempt = token
        context.run_id = f"nightly~{token}"
        made = Backup().run(context)["url"]
    (Path(made) / "folder.tar.zst").unlink()
    return {"destination": str(tmp_path / "to"), "copies": copies}


class Cluster(Asked):
    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__("", None)
        self._task = {"kind": "backup", "params": params}


def test_the_first_destination_that_has_the_newest_backup_whole_is_read(
    tmp_path: Path, three_places: dict[str, Any]
) -> None:
    api: Any = Cluster(three_places)
    found, said = find_backups(task_places(api, "nightly", NOTHING)), list[str]()
    newest = [each.place.url for each in found.whole(found.chosen(), said.append)]
    assert newest == [f"{tmp_path}/near/nightly", f"{tmp_path}/far/nightly"]
    assert said == [f"{found.complete[0].url} lacks folder.tar.zst"]
    [only] = task_places(api, "nightly", NOTHING, f"{tmp_path}/far")
    assert only.url == f"{tmp_path}/far/nightly"
    with pytest.raises(
        click.UsageError, match=r"--from /else: nightly has no such destination \(it has: .*/near, .*/far"
    ):
        task_places(api, "nightly", NOTHING, "/else")


def test_each_backup_is_found_once_with_the_places_that_have_it(tmp_path: Path, three_places: dict[str, Any]) -> None:
    places = task_places(Cluster(three_places), "nightly", NOTHING)  # type: ignore[arg-type]
    shutil.rmtree(min((tmp_path / "far" / "nightly").iterdir()))
    found = find_backups(places)
    assert [backup.token for backup in found.complete] == [2, 1]
    where = [[Path(url).parent.name for url in found.places(one.name)] for one in found.complete]
    assert where == [["to", "near", "far"], ["to", "near"]]


def test_what_stays_is_said_of_each_destination_by_its_own_rules(tmp_path: Path, three_places: dict[str, Any]) -> None:
    three_places["copies"][0]["keep"] = 1
    rules = _keep_rules(Cluster(three_places), "nightly", None)  # type: ignore[arg-type]
    assert rules == {
        f"{tmp_path}/to/nightly": None,
        f"{tmp_path}/near/nightly": KeepRules(last=1),
        f"{tmp_path}/far/nightly": None,
    }


def test_keys_come_from_files_and_a_fault_is_one_sentence(tmp_path: Path) -> None:
    assert _backup_keys((), None) is None
    public, private = new_identity(None)
    identity, empty, other = tmp_path / "key.txt", tmp_path / "empty", tmp_path / "other"
    identity.write_text(f"# public key: {public}\n{private}")
    empty.write_text("\nsecond line")
    other.write_text("nonsense")
    found = _backup_keys((str(identity), str(identity)), None)
    assert found is not None and (len(found.identities.keys), found.passphrase) == (2, None)
    for files, passphrase, said in (
        ((str(tmp_path / "absent"),), None, "the identity cannot be read: "),
        ((str(other),), None, f"{other} is not an identity file of age"),
        ((), str(empty), f"{empty}: the first line, which is the passphrase, is empty"),
        ((), str(tmp_path / "absent"), "the passphrase cannot be read: "),
    ):
        with pytest.raises(click.ClickException) as refused:
            _backup_keys(files, passphrase)
        assert refused.value.message.startswith(said)


def test_a_new_key_is_an_identity_file_whose_comment_is_the_recipient() -> None:
    done = CliRunner().invoke(key_command, [], catch_exceptions=False)
    assert done.exit_code == 0
    comment, private = done.output.strip().splitlines()
    [recipient] = Identities.of_text(private, "printed").public()
    assert comment == f"# public key: {recipient}"
