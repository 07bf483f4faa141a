"""How the outcome of a command becomes a sentence and an exit code."""

import errno
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from node.cli.api import ago
from node.cli.backup_access import errors_as_sentences
from node.cli.main import _MODULES, DONE, UNREACHABLE, WRONG_CALL, exit_code_after, exit_code_of, main
from node.client import ApiProblem, Client, Unreachable, _target, path
from tasks.backup.manifest import NoBackup
from testkit.servers.api_server import Request, Response, api_server, as_json


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (None, 0, ""),
        (1, 1, ""),  # click gives the code of a command that asks to exit
        (click.UsageError("no such option"), 2, "no such option"),
        (click.ClickException("it is damaged"), 1, "it is damaged"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "cannot write the output: No space left on device"),
        (Unreachable("no member answered"), 3, "ROTA_URL is the address that is asked"),
        (
            ApiProblem(503, "", "There is no quorum", "nothing was proposed"),
            3,
            "There is no quorum: nothing was proposed",
        ),
        (ApiProblem(504, "", "It may yet be committed", ""), 3, "It may yet be committed"),
        (ApiProblem(422, "", "Some fields are not right", "", (("weight", "is too much"),)), 2, "weight: is too much"),
        (ApiProblem(409, "", "This is not possible", "it is paused"), 1, "it is paused"),
        (click.Abort(), 130, ""),
    ],
)
def test_each_outcome_has_an_exit_code_and_a_sentence(
    outcome: Any, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    assert exit_code_after(command) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "becomes", "said"),
    [
        (NoBackup("there is none"), click.ClickException, "there is none"),
        (PermissionError(13, "denied"), click.ClickException, "the storage returned an error: PermissionError"),
        (Unreachable("nobody"), Unreachable, "nobody"),
        (click.exceptions.Exit(1), click.exceptions.Exit, ""),
    ],
)
def test_errors_of_a_storage_become_sentences_and_others_pass(
    error: Exception, becomes: type[Exception], said: str
) -> None:
    with pytest.raises(becomes) as raised, errors_as_sentences():
        raise error
    assert said in str(getattr(raised.value, "message", raised.value))


PAGE = b"<!DOCTYPE HTML><html><head><title>Error</title></head><body><h1>Not here</h1>\n</body></html>"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response(body=iter([b"<html>"])), "its answer lacks the header Rota-Index"),
        (as_json({"ok": True}), "its answer lacks the header Rota-Index"),
        (Response(302, headers={"Location": "/login"}), "it redirects to /login"),
        (Response(404, iter([PAGE])), "it answers 404, and not as a node does"),
        (Response(501, iter([PAGE])), "it answers 501, and not as a node does"),
    ],
)
def test_an_answer_of_another_server_is_not_from_rota(
    answer: Response, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another port's server: it was a traceback, or the page that it answers."""
    with api_server(lambda _: answer, of_node=False) as url:
        with pytest.raises(SystemExit) as ended:
            main(["status"], Client([url]))
        assert ended.value.code == UNREACHABLE
        assert f"the server at {url} is not a Rota node: {said}\n" in capsys.readouterr().err


def test_an_answer_of_a_node_without_json_is_none() -> None:
    with (
        api_server(lambda _: Response(body=iter([b"<html>"]))) as url,
        pytest.raises(Unreachable, match=f"{url} is not a Rota node: its answer is not JSON"),
    ):
        Client([url]).get("/v1/cluster")


def test_a_page_of_a_proxy_is_told_without_its_tags() -> None:
    with api_server(lambda _: Response(502, iter([PAGE])), of_node=False) as url:
        with pytest.raises(ApiProblem) as raised:
            Client([url]).get("/v1/cluster")
        assert str(raised.value) == "HTTP 502: Not here"
        assert exit_code_of(raised.value) == UNREACHABLE


@pytest.mark.parametrize(
    ("given", "proposed"),
    [("stat", "'status'"), ("logs", "'log'"), ("init", "'up'"), ("ls", "'tasks'"), ("trigger", "'run'"), ("xyzzy", "")],
)
def test_a_wrong_name_of_a_command_is_answered_with_a_right_one(
    given: str, proposed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([given])
    assert ended.value.code == WRONG_CALL
    said = capsys.readouterr().err
    assert f"No such command '{given}'." in said
    assert proposed in said


def test_only_a_followed_log_may_be_silent_for_longer_than_the_timeout() -> None:
    timeout_s = 0.2

    def answer(request: Request) -> Response:
        if request.path != "/v1/runs/r/log":
            return as_json({"state": "succeeded", "attempt": 1, "attempts": [{"attempt": 1, "node": "a"}]})

        def late() -> Iterator[bytes]:
            yield b"first\n"
            time.sleep(3 * timeout_s)

        return Response(body=late())

    with api_server(answer) as url:
        for words, code in ((["log", "r"], UNREACHABLE), (["log", "r", "-f"], DONE)):
            with pytest.raises(SystemExit) as ended:
                main(words, Client([url], timeout_s=timeout_s))
            assert ended.value.code == code


def test_names_are_quoted_in_paths() -> None:
    assert path("v1", "tasks", "a/b", "owner") == "/v1/tasks/a%2Fb/owner"
    # A word of a command line that is no UTF-8 is nobody's name, and no fault of the program's.
    assert _target("/v1/runs", {"task": "caf\udce9", "node": None}) == "/v1/runs?task=caf%E9"
    assert path("v1", "tasks", "caf\udce9") == "/v1/tasks/caf%E9"


def test_times_are_printed_as_people_say_them() -> None:
    assert ago(None) is None
    now = datetime.now(UTC)
    said = [ago((now - timedelta(seconds=since_s)).isoformat()) for since_s in (30, 70, 3610, 90_000, -75.9)]
    assert said == ["30 s ago", "1 min ago", "1 h ago", "1 d ago", "in 1 min 15 s"]


SLOW = ("pydantic", "aiohttp", "urllib3", "msgpack", "asyncio", "node.state", "tasks.definition.spec")
NEED_THEM = {
    "backups": "reads manifests",
    "wal": "reads pages",
    "recovery": "reads states",
    "schema": "loads kinds",
    "importing": "checks cron expressions",
}
"""The modules of commands that import what is slow, and why."""


def test_commands_start_quickly_since_they_import_nothing_slow_before_they_need_it() -> None:
    quick = sorted({*_MODULES.values()} - {*NEED_THEM})
    imports = "\n".join(f"import node.cli.{module}; print('{module}', found())" for module in quick)
    found = f"import sys\ndef found(): return [name for name in {SLOW} if name in sys.modules]\n"
    done = subprocess.run([sys.executable, "-c", found + imports], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{module} []" for module in quick]
