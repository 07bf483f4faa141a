"""Wrong input ends with a sentence and exit code 2, not with a traceback."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from node.cli.api import Api
from node.cli.main import ABORTED, main
from node.cli.runs import wait_and_show
from node.cli.task_files import LIST_BYTES_MAX
from testkit.servers.api_server import Request, Response, api_server, as_json

NOT_UTF8 = b"name: caf\xe9\nkind: probe\n"


class Cluster:
    """Answers each request with success, and records what was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.headers: Mapping[str, str] = {}
        self.refused = "nothing"
        self.answers: dict[str, Callable[[], Any]] = {}

    def answer(self, request: Request) -> Response:
        self.headers = request.headers
        if request.body:
            self.sent.append(json.loads(request.body))
        default: dict[str, Any] = {"params": {"a": 1}, "run_id": "r", "items": [], "next": None}
        content = self.answers[request.path]() if request.path in self.answers else default
        return as_json(content, 401 if request.target.startswith(self.refused) else 200, Rota_Index="7")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name in ("ROTA_TOKEN", "ROTA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    made = Cluster()
    with api_server(made.answer) as url:
        monkeypatch.setenv("ROTA_URL", url)
        yield made


def ended(*words: str, stdin: bytes = b"") -> int:
    """The exit code of a command."""
    with CliRunner().isolation(stdin) as (_, err, _), pytest.raises(SystemExit) as exited:
        main(words)
    sys.stderr.write(err.getvalue().decode())
    assert isinstance(exited.value.code, int)
    return exited.value.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "T", "--param", "x=["], "--param x cannot be read as YAML"),
        (["run", "T", "--param", "x=&a [*a]"], "--param x cannot be read as YAML"),
        (["run", "T", "--param", "x=!!binary aGk="], "--param x cannot be read as YAML"),
        (["run", "T", "--param", "x=!!bool perhaps"], "--param x cannot be read as YAML"),
        (["run", "T", "--param", "x=1\n---\n2"], "--param x holds 2 YAML documents"),
        (["run", "T", "--param", "x=\udcff"], "--param x cannot be read as YAML"),
        (["settings", "x=["], "x cannot be read as YAML"),
        (["settings", "x=!!set {a}"], "x cannot be read as YAML"),
        (["apply", "-f", "{latin}"], "latin is not UTF-8 text (first wrong byte: 9): save it as UTF-8"),
        (["apply", "-f", "{binary}"], "cannot be read as YAML or JSON"),
        (["apply", "-f", "{folder}"], "no file there contains a task"),
        (["apply", "-f", "{deep}"], "deep is nested more than 200 levels deep"),
        (["apply", "-f", "-"], "standard input is not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_a_wrong_call(
    words: list[str],
    said: str,
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "latin").write_bytes(NOT_UTF8)
    (tmp_path / "binary").write_text("{name: a, kind: probe, params: {x: !!binary aGk=}}")
    (tmp_path / "deep").write_text("[" * 2_000 + "]" * 2_000)
    places = {f"{{{name}}}": str(tmp_path / name) for name in ("latin", "binary", "deep")} | {"{folder}": str(tmp_path)}
    given = [places.get(word, word) for word in words]
    assert ended(*given, stdin=NOT_UTF8) == 2
    assert said in capsys.readouterr().err
    assert cluster.sent == []


def test_a_date_stays_text(cluster: Cluster) -> None:
    assert ended("run", "T", "--param", "day=2026-01-01", "--param", "n=3", "--param", "op==") == 0
    assert ended("settings", "history_days=2026-01-01") == 0
    assert cluster.sent == [
        {"params": {"a": 1, "day": "2026-01-01", "n": 3, "op": "="}},
        {"history_days": "2026-01-01"},
    ]


@pytest.mark.parametrize(
    ("token", "file", "said"),
    [
        ("two\nlines", None, "ROTA_TOKEN: a token is one line"),
        ("not \udcff UTF-8", None, "ROTA_TOKEN: a token is one line of text in UTF-8"),
        (None, b"two\nlines", "token: a token is one line"),
        (None, b"\xff\xfe random", "token is not UTF-8 text"),
    ],
)
def test_a_token_that_cannot_be_sent_is_a_wrong_call(
    token: str | None,
    file: bytes | None,
    said: str,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if token is not None:
        monkeypatch.setenv("ROTA_TOKEN", token)
    if file is not None:
        (tmp_path / "token").write_bytes(file)
        monkeypatch.setenv("ROTA_TOKEN_FILE", str(tmp_path / "token"))
    assert ended("members") == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("token", ["t0ken", "t0ken\n", "5 € é"])
def test_a_token_is_sent_as_nodes_read_it(token: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_TOKEN", token)
    assert ended("members") == 0
    # As the library writes a header.
    assert cluster.headers["Authorization"].encode("latin-1") == f"Bearer {token.strip()}".encode()


def test_an_error_that_retries_do_not_change_ends_the_wait(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A revoked token, for example, was retried for ever."""
    cluster.refused = "/v1/runs/"
    assert ended("run", "T", "--wait") == 2
    assert "HTTP 401" in capsys.readouterr().err
    assert cluster.headers["Rota-Index"] == "7", "a member that has not applied the start does not know the run"


def test_wait_prints_why_a_run_waits(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a task that no member may run, nothing was printed."""
    waiting: dict[str, Any] = {
        "run_id": "r",
        "task": "T",
        "state": "waiting",
        "node": None,
        "progress": None,
        "attempts": [],
    }
    ends = waiting | {"state": "cancelled", "error": None, "result": None}
    looks = iter([waiting, waiting, ends])
    why = {"detail": "no member has the label gpu=yes"}
    cluster.answers = {"/v1/runs/r": lambda: next(looks), "/v1/tasks/T/why": lambda: why}
    assert wait_and_show(Api(as_json=False), "r", "7", waiting_s=0) == ends
    assert capsys.readouterr().err == "rota: r waits: no member has the label gpu=yes\n"


def test_a_run_that_is_no_longer_waited_for_is_said_to_go_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar with its id is gone after Ctrl-C, and nothing told that the run goes on."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("node.cli.runs.wait_for_end", interrupted)
    assert ended("run", "T", "--wait") == ABORTED
    said = "rota: no longer waiting for r, which is not stopped by that; see it: rota log -f r; stop it: rota cancel r"
    assert said in capsys.readouterr().err


def test_comparing_many_names_takes_linear_time(cluster: Cluster, tmp_path: Path) -> None:
    """Each with all others took 8 s for 30,000, and four times as long for twice as many."""
    (tmp_path / "tasks").write_text(json.dumps([{"name": f"task-{number}", "kind": "x"} for number in range(30_000)]))
    begun_s = time.process_time()
    assert ended("apply", "-f", str(tmp_path / "tasks")) == 0
    assert time.process_time() - begun_s < 3
    assert sum(map(len, cluster.sent)) == 2 * 30_000, "all are tried before any is sent"
    assert max(len(json.dumps(part)) for part in cluster.sent) <= LIST_BYTES_MAX


@pytest.mark.parametrize("first", ["[" + "x," * 9 + "x]", "x" * 100_000], ids=["values", "one long text"])
def test_aliases_that_expand_to_terabytes_are_a_wrong_call(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"a: &a {first}"] + [f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in pairwise("abcdefghijkl")]
    assert ended("apply", "-f", "-", stdin="\n".join(lines).encode()) == 2
    assert "with its aliases (*NAME) expanded" in capsys.readouterr().err


def test_aliases_that_repeat_a_little_are_read(cluster: Cluster) -> None:
    text = b"- &a {name: a, kind: probe, params: {x: &p [1, 2]}}\n- {name: b, kind: probe, params: {x: *p, y: *p}}\n"
    assert ended("apply", "-f", "-", stdin=text) == 0
    assert cluster.sent[-1][1]["params"] == {"x": [1, 2], "y": [1, 2]}


def test_all_files_that_apply_is_given_are_sent(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, only the last file was sent."""
    words = ["apply"]
    for name in ("a", "b", "empty"):
        (tmp_path / name).write_text(f"{{name: {name}, kind: x}}" if name != "empty" else "# nothing")
        words += ["-f", str(tmp_path / name)]
    assert ended(*words) == 2
    assert "empty contains no task" in capsys.readouterr().err
    assert cluster.sent == [], "all files are read before any is sent"
    assert ended(*words[:5]) == 0
    assert [[task["name"] for task in part] for part in cluster.sent] == [["a", "b"]] * 2, "tried, then sent"
    assert ended("apply", "-f", words[2], "-f", words[2]) == 2
    assert f"defined more than once: a (in {words[2]})" in capsys.readouterr().err
