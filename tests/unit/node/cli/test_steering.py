"""Control characters in names and errors of tasks do not reach the terminal."""

import unicodedata
from typing import Any, Final

import pytest
from click.testing import CliRunner

from node.cli.main import rota
from node.client import Client
from testkit.servers.api_server import api_server, as_json

STEERS: Final = "\x1b]0;title\x07\x1b[2J\rclean\x08\x9b31m\u202egnp\u2066\n2026-01-01 forged"
ATTEMPT: Final = {"attempt": 1, "node": "node-1", "state": "failed", "error": STEERS}
RUN: Final = {
    "run_id": "r",
    "task": "a",
    "state": "failed",
    "node": "node-1",
    "attempt": 1,
    "finished_at": None,
    "params": {STEERS: STEERS},
    "error": STEERS,
    "attempts": [ATTEMPT],
    "result": None,
}
MEMBER: Final = {
    "id": "node-1",
    "slot": 0,
    "status": "draining",
    "reason": STEERS,
    "aside": None,
    "since": None,
    "load": 0,
    "running": 0,
    "capacity": 1,
    "labels": {"a": STEERS},
    "kinds": [STEERS],
    "url": "http://127.0.0.1:1",
}
VITALS: Final = {"node": STEERS, "not_kept": [STEERS]}
CLUSTER: Final = {
    "id": "c",
    "node": "node-1",
    "leader": None,
    "term": 1,
    "index": 1,
    "quorum": True,
    "waiting_for": None,
    "mismatches": [{"detail": STEERS}],
    "members": [MEMBER],
}
PINGS: Final = {"node": "node-1", "every_s": 60, "at": "2026-11-23T00:00:00Z", "withheld": STEERS, "error": None}
WHY: Final = {"code": "aside", "sentence": STEERS, "steps": [{"place": "lease", "found": STEERS, "ends": True}]}


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["runs"], {"/v1/runs": {"items": [RUN]}}),
        (["show", "a~1"], {"/v1/runs/a~1": RUN}),
        (
            ["members"],
            {
                "/v1/members": {"items": [MEMBER], "next": None},
                "/v1/vitals": {"items": [VITALS]},
                "/v1/cluster": CLUSTER,
            },
        ),
        (["status"], {"/v1/cluster": CLUSTER, "/v1/runs": {"items": []}}),
        (["why", "a"], {"/v1/tasks/a/why": WHY}),
        (["status"], {"/v1/cluster": {**CLUSTER, "waiting_for": STEERS}, "/v1/runs": {"items": []}}),
        (["status"], {"/v1/cluster": {**CLUSTER, "watchdog": PINGS}, "/v1/runs": {"items": []}}),
    ],
    ids=["runs", "run", "members", "status", "why", "waiting", "watchdog"],
)
def test_control_characters_do_not_reach_the_terminal(words: list[str], answers: dict[str, Any]) -> None:
    with api_server(lambda request: as_json(answers[request.path])) as url:
        ended = CliRunner().invoke(rota, words, obj=Client([url]))
    assert ended.exception is None
    assert "clean" in ended.stdout
    assert not [char for char in ended.stdout if char != "\n" and unicodedata.category(char) in ("Cc", "Cf")]
