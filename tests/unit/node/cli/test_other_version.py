"""A `rota` that asks a node of another version says so, and prints no traceback."""

from typing import Any

import pytest
from click.testing import CliRunner

from node.cli.main import exit_code_after, main, rota
from node.client import Client
from tasks.version import version
from testkit.servers.api_server import Request, Response, api_server, as_json

EARLIER = {"info": {"version": "0.1.0"}}
MEMBER = {"id": "node-1", "status": "up", "later": {"a field of a later version": 1}}


def asked(words: list[str], answers: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and what it says on standard error."""

    def answer(request: Request) -> Response:
        found = answers.get(request.path)
        return found if isinstance(found, Response) else as_json(found)

    with api_server(answer) as url, pytest.raises(SystemExit) as ended:
        main(words, Client([url]))
    assert isinstance(ended.value.code, int)
    return ended.value.code, capfd.readouterr().err


@pytest.mark.parametrize(
    "answers",
    [
        {"/v1/members": {"items": [{"id": "node-1"}], "next": None}},
        {"/v1/members": {"items": [MEMBER | {"since": 5}], "next": None}},
        {"/v1/members": {"members": []}},
        {"/v1/members": [1, 2]},
        {"/v1/members": {"items": None}},
    ],
    ids=["fields missing", "another type", "another name", "a list", "null"],
)
def test_an_answer_that_cannot_be_read_is_of_another_version(
    answers: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = asked(["members"], {**answers, "/openapi.json": EARLIER}, capfd)
    assert code == 1
    assert "the node's answer cannot be read (" in said
    assert f"runs rota 0.1.0, and this command is of rota {version()}: use the rota of the nodes' version" in said
    assert "Traceback" not in said


def test_what_a_node_refuses_that_it_does_not_know_may_be_of_a_later_version(capfd: pytest.CaptureFixture[str]) -> None:
    problem = {"type": "/problems/not-found", "title": "Not found", "detail": "there is no such path"}
    answers = {"/v1/tasks/a/why": as_json(problem, 404), "/openapi.json": EARLIER}
    code, said = asked(["why", "a"], answers, capfd)
    assert code == 1
    assert "there is no such path\nthe node at http://127.0.0.1:" in said
    assert "runs rota 0.1.0" in said


def test_a_node_of_the_same_version_is_not_said_to_be_of_another(capfd: pytest.CaptureFixture[str]) -> None:
    problem = {"type": "/problems/not-found", "title": "Not found", "detail": "there is no task 'a'"}
    answers = {
        "/v1/tasks/a/why": as_json(problem, 404),
        "/openapi.json": {"info": {"version": version()}},
        "/v1/members": {},
    }
    assert asked(["why", "a"], answers, capfd) == (1, "rota: Not found: there is no task 'a'\n")
    with api_server(lambda request: as_json(answers[request.path])) as url, pytest.raises(KeyError):
        exit_code_after(lambda: rota.main(["members"], standalone_mode=False, obj=Client([url])))


def test_a_node_that_names_no_mismatches_or_fields_that_are_new_is_shown() -> None:
    """As an earlier one answers, and a later one."""
    member = {**MEMBER, "reason": None, "since": None, "load": 0, "running": 0}
    cluster = {"id": "c", "node": "node-1", "leader": None, "term": 1, "index": 1, "quorum": True, "waiting_for": None}
    answers = {"/v1/cluster": {**cluster, "members": [member], "later": 1}, "/v1/runs": {"items": [], "later": 2}}
    with api_server(lambda request: as_json(answers[request.path])) as url:
        shown = CliRunner().invoke(rota, ["status"], obj=Client([url]))
    assert shown.exit_code == 0
    assert "node-1  up" in shown.output


def test_version_is_that_of_this_build() -> None:
    assert CliRunner().invoke(rota, ["--version"]).output == f"rota {version()}\n"
