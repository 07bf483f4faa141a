"""How the command line finds the token of a cluster that `rota up` runs, and where it does not send it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.cli import tokens
from node.cli.local import LocalCluster
from node.cli.up import NotForUp, handed_on

HERE = "http://127.0.0.1:8101"


@contextmanager
def recorded(folder: Path, ports: list[int], environ: dict[str, str]) -> Iterator[Path]:
    folder.mkdir()
    (folder / "token").write_text(f"of {folder.name}")
    tokens.record(folder / "token", ports, environ)
    yield folder / "token"
    tokens.forget_token_file(folder / "token", ports, environ)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_token_is_found_by_each_address_while_its_cluster_runs(tmp_path: Path, environ: dict[str, str]) -> None:
    with recorded(tmp_path / "a", [8101, 8102], environ) as token:
        for urls in ([HERE], ["http://localhost:8102/"], [HERE, "http://127.0.0.1:8102"]):
            assert tokens.find_token_file(urls, environ, tmp_path / "none") == token
    assert tokens.find_token_file([HERE], environ, tmp_path / "none") is None


@pytest.mark.parametrize(
    "urls",
    [
        [],
        ["http://127.0.0.1:9999"],
        ["http://elsewhere:8101"],
        ["http://127.0.0.1.evil:8101"],
        ["http://127.0.0.1:8101@evil:8101"],
        ["https://127.0.0.1:8101"],
        ["http://127.0.0.1:port"],
        [HERE, "http://evil:8101"],
        [HERE, "http://127.0.0.1:8201"],
    ],
)
def test_a_token_is_not_sent_to_other_addresses(tmp_path: Path, environ: dict[str, str], urls: list[str]) -> None:
    with recorded(tmp_path / "a", [8101], environ), recorded(tmp_path / "b", [8201], environ):
        assert tokens.find_token_file(urls, environ, tmp_path / "none") is None


def test_the_record_of_a_cluster_that_took_over_the_ports_is_kept(tmp_path: Path, environ: dict[str, str]) -> None:
    with recorded(tmp_path / "a", [8101], environ):
        tokens.record(tmp_path / "b" / "token", [8101], environ)
    assert (tokens.records_folder(environ) / "8101").read_text() == str(tmp_path / "b" / "token")


def test_a_token_is_found_in_the_working_folder_s_cluster(tmp_path: Path, environ: dict[str, str]) -> None:
    with LocalCluster(tmp_path / "c", 2, [8101, 8102]) as cluster:
        assert tokens.find_token_file([HERE], environ, cluster.folder) == cluster.folder / "token"
        assert tokens.find_token_file(["http://127.0.0.1:8103"], environ, cluster.folder) is None
        (cluster.folder / "cluster.json").write_text("[]")
        assert tokens.find_token_file([HERE], environ, cluster.folder) is None


def test_a_cluster_s_token_is_made_once_and_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir(0o755)
    (folder / "cluster.json").write_text(json.dumps({"node-1": [7001, 8101]}))  # of a build that made no token
    with LocalCluster(folder, 1) as first:
        assert first.token
        kept = first.token
        assert first.environment("node-1")["ROTA_TOKEN_FILE"] == str(folder / "token")
    (folder / "token").chmod(0o644)
    with LocalCluster(folder, 1) as again:
        assert again.token == kept
    assert [path.stat().st_mode & 0o077 for path in (folder, folder / "token", folder / "secret")] == [0, 0, 0]
    with LocalCluster(tmp_path / "d", 1, env={"ROTA_TOKEN": "given"}) as given:
        assert (given.token, given.token_file, (tmp_path / "d" / "token").exists()) == ("given", None, False)


def test_settings_are_handed_on_or_refused_and_never_dropped() -> None:
    given = {"ROTA_TOKEN": "t", "ROTA_SECRETS_DIR": "/s", "ROTA_SOURCE_ROOTS": "/srv", "ROTA_ALLOW_COMMAND": "0"}
    assert handed_on(given | {"ROTA_URL": HERE, "PATH": "/bin", "ROTA_BIND": ""}) == given
    for name in ("NODE", "MEMBERS", "JOIN", "DATA", "BIND", "HEARTBEAT_PORT", "SECRET", "SECRET_FILE"):
        with pytest.raises(NotForUp, match=f"rota up does not take ROTA_{name}: "):
            handed_on({f"ROTA_{name}": "x"})
    with pytest.raises(NotForUp, match="keep one"):
        handed_on({"ROTA_TOKEN": "t", "ROTA_TOKEN_FILE": "/t"})
