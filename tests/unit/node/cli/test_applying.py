"""Applying files that ends midway: what is told of what was done, and of what was not."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click
import pytest

from node.cli.api import Api
from node.cli.applying import apply_command, diff_command
from node.cli.main import DIFFERENT
from node.cli.task_files import LIST_BYTES_MAX
from node.client import ApiProblem, Client
from testkit.servers.api_server import Request, Response, api_server, as_json


class Cluster:
    """A cluster that has tasks of the set `site`, and refuses to change those in `refused`, with that status."""

    def __init__(self) -> None:
        self.registered = ["old-1", "old-2", "old-3"]
        self.refused: dict[str, int] = {}
        self.deleted_by_others: set[str] = set()
        self.too_long = ""
        self.pools = {"dumps": 1, "table": 1}
        self.calendars = {"closing": ["2026-12-24"], "same": ["2026-12-31"]}
        self.owners: dict[str, str] = {}
        self.users: dict[str, int] = {}
        self.ending: dict[str, int] = {}
        """How often a pool is refused to be removed because runs of deleted tasks still end."""
        self.definitions: dict[str, dict[str, Any]] = {}
        self.children: dict[str, list[str]] = {}
        self.client = Client()

    def answer(self, request: Request) -> Response:
        query = dict(parse_qsl(urlsplit(request.target).query))
        if request.path == "/v1/settings":
            return self._change_pools(json.loads(request.body)["pools"], query)
        if request.path in ("/v1/pools", "/v1/calendars"):
            there = self.pools if request.path == "/v1/pools" else self.calendars
            return as_json({"items": [self._beside(name, value) for name, value in there.items()], "next": None})
        if request.path.startswith("/v1/calendars/"):
            name = request.path.rpartition("/")[2]
            if request.method == "DELETE":
                return self._removed(name, query, self.calendars)
            if request.method == "PUT":
                self._own(name, name in self.calendars, query)
                self.calendars[name] = json.loads(request.body)["dates"]
            return as_json({"dates": self.calendars[name]})
        if request.path.endswith("/graph"):
            parent = request.path.split("/")[3]
            edges = [{"from": parent, "to": child} for child in self.children.get(parent, ())]
            return as_json({"edges": edges})
        if request.method == "GET":
            items = [
                {"name": name, "set": "site", "version": 7, **self.definitions.get(name, {})}
                for name in self.registered
            ]
            return as_json({"items": items, "next": None})
        dry_run = "dry_run" in request.target
        names = (
            [request.path.rpartition("/")[2]]
            if request.method == "DELETE"
            else [task["name"] for task in json.loads(request.body)]
        )
        if self.too_long in names:
            return as_json({"type": "/problems/too-large", "title": "Too large", "status": 413}, 413)
        for status in (self.refused[name] for name in names if name in self.refused and not dry_run):
            return as_json({"type": "/problems/x", "title": "Refused", "detail": "so it is", "status": status}, status)
        if request.method == "DELETE":
            assert request.headers["If-Match"] == '"7"'
            self.registered.remove(names[0])
            for used in self.definitions.pop(names[0], {}).get("uses", {}):
                self.users[used] -= 1
            return Response(204)
        items = [
            {
                "name": name,
                "change": "unchanged" if name in self.registered else "created",
                "version": 1,
                "changes": [],
                "warnings": [],
            }
            for name in names
        ]
        if not dry_run:
            self.registered = sorted({*self.registered, *names} - self.deleted_by_others)
        return as_json({"items": items}, Rota_Index="9")

    def _beside(self, name: str, value: Any) -> dict[str, Any]:
        """A pool or a calendar as a list shows it."""
        users, ending = self.users.get(name, 0), self.ending.get(name, 0)
        item: dict[str, Any] = {"name": name, "set": self.owners.get(name), "tasks": users}
        return {**item, "capacity": value, "holders": [{}] * ending} if isinstance(value, int) else item

    def _own(self, name: str, known: bool, query: dict[str, str]) -> None:
        if "set" in query and (not known or (query.get("adopt") and name in self.owners)):
            self.owners[name] = query["set"]

    def _change_pools(self, changes: dict[str, int | None], query: dict[str, str]) -> Response:
        for name, capacity in changes.items():
            if capacity is None:
                return self._removed(name, query, self.pools)
            self._own(name, name in self.pools, query)
            self.pools[name] = capacity
        return as_json({"pools": self.pools})

    def _removed(self, name: str, query: dict[str, str], there: dict[str, Any]) -> Response:
        assert self.owners.get(name) == query["set"], "what the set did not make is not removed"
        if self.users.get(name) or self.ending.get(name):
            self.ending[name] = max(0, self.ending.get(name, 0) - 1)
            return as_json({"type": "/problems/x", "title": "Used", "detail": "it is used", "status": 422}, 422)
        del there[name]
        return as_json({})


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    with api_server(made.answer) as url:
        made.client = Client([url])
        yield made


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The options for a folder of two tasks that are sent in a request each."""
    filling = "x" * (LIST_BYTES_MAX // 2)
    for name in ("new-1", "new-2"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "kind": "x", "params": {"f": filling}}))
    return ["-f", str(tmp_path), "--set", "site", "--prune"]


def applied(cluster: Cluster, words: list[str]) -> None:
    apply_command.main(words, standalone_mode=False, obj=cluster.client)


def test_a_task_that_somebody_has_changed_is_kept_and_the_others_are_deleted(
    cluster: Cluster, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the refusal was told, not what had been applied before it, and the other tasks were left."""
    cluster.refused = {"old-1": 412, "old-2": 404}
    with pytest.raises(click.ClickException, match=r"not deleted, because .* meanwhile: old-1\. All else is done"):
        applied(cluster, words)
    assert capsys.readouterr().out.splitlines() == [
        "new-1: created (version 1)",
        "new-2: created (version 1)",
        "old-1: not deleted: somebody has changed it meanwhile",
        "old-2: was deleted by somebody else meanwhile",
        "old-3: deleted, and its runs are cancelled",
    ]
    with pytest.raises(click.ClickException):
        applied(cluster, [*words, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["deleted"], answer["kept"]) == ([], ["old-1"])


def test_nothing_is_changed_if_what_stays_comes_after_what_would_be_deleted(cluster: Cluster, words: list[str]) -> None:
    cluster.registered.append("gone")
    cluster.children["gone"] = ["hand"]
    before = list(cluster.registered)
    for command, more in ((diff_command, []), (apply_command, ["--dry-run"]), (apply_command, [])):
        with pytest.raises(click.UsageError, match="gone would be deleted, and hand comes after it"):
            command.main([*words, *more], standalone_mode=False, obj=cluster.client)
    assert cluster.registered == before


@pytest.mark.parametrize(
    ("refused", "done", "said"),
    [
        (
            {"new-2": 504},
            ["new-1: created (version 1)"],
            "rota: ended midway, with 1 of 2 tasks applied and 0 of 3 deleted; not applied, as far as is known: "
            "new-2; not deleted, as far as is known: old-1, old-2, old-3. `rota diff` with the same options shows "
            "what is left; give the same command again",
        ),
        (
            {"old-2": 403},
            [
                "new-1: created (version 1)",
                "new-2: created (version 1)",
                "old-1: deleted, and its runs are cancelled",
            ],
            "rota: ended midway, with 2 of 2 tasks applied and 1 of 3 deleted; not deleted: old-2, old-3. `rota diff` "
            "with the same options shows what is left; then give the same command again",
        ),
        ({"new-1": 403}, [], "rota: nothing was changed"),
        ({"new-1": 503}, [], "rota: nothing was changed"),
    ],
)
def test_what_is_left_is_told(
    cluster: Cluster,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    refused: dict[str, int],
    done: list[str],
    said: str,
) -> None:
    cluster.refused = refused
    with pytest.raises(ApiProblem):
        applied(cluster, words)
    told = capsys.readouterr()
    assert (told.out.splitlines(), told.err.splitlines()) == (done, [said])


def test_what_was_done_before_ctrl_c_is_told(
    cluster: Cluster, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = cluster.client.call

    def interrupted(method: str, target: str, **options: Any) -> Any:
        if target.endswith("old-2"):
            raise KeyboardInterrupt
        return call(method, target, **options)

    monkeypatch.setattr(cluster.client, "call", interrupted)
    with pytest.raises(click.Abort):
        applied(cluster, [*words, "--json"])
    told = capsys.readouterr()
    answer = json.loads(told.out)
    assert ([put["name"] for put in answer["items"]], answer["deleted"]) == (["new-1", "new-2"], ["old-1"])
    assert "2 of 2 tasks applied and 1 of 3 deleted" in told.err


def test_ctrl_c_before_the_first_change_says_so(
    cluster: Cluster, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster.client, "call", interrupted)
    with pytest.raises(click.Abort):
        applied(cluster, words)
    assert capsys.readouterr().err.splitlines()[0] == "rota: nothing was changed"


def test_an_empty_set_says_that_there_is_nothing_to_do(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.registered = []
    applied(cluster, ["-f", str(tmp_path), "--set", "site", "--prune", "--allow-empty"])
    said = "no task is in the files or the set, and pools and calendars are as in the files"
    assert capsys.readouterr().out == f"there is nothing to change: {said}\n"


def test_pools_are_changed_before_the_tasks_and_shown_as_they_differ(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("pools: {dumps: 2, table: 1, new: 0}\n---\nname: old-1\nkind: x\n")
    words = ["-f", str(file)]
    assert diff_command.main(words, standalone_mode=False, obj=cluster.client) == DIFFERENT
    assert capsys.readouterr().out.splitlines()[:2] == ["~ pool dumps: 1 -> 2", "+ pool new: 0"]
    applied(cluster, [*words, "--dry-run"])
    assert capsys.readouterr().out.splitlines()[0] == "pool dumps: 1 -> 2 (would be)"
    cluster.refused = {"old-1": 403}
    with pytest.raises(ApiProblem):
        applied(cluster, words)
    told = capsys.readouterr()
    assert told.out.splitlines() == ["pool dumps: 1 -> 2", "pool new: 0"]
    assert "nothing was changed" not in told.err and "0 of 1 tasks applied" in told.err
    assert cluster.pools == {"dumps": 2, "table": 1, "new": 0}
    cluster.refused = {}
    applied(cluster, [*words, "--json"])
    assert json.loads(capsys.readouterr().out)["pools"] == [], "they are as in the file"


def test_calendars_are_changed_before_the_tasks_and_shown_as_they_differ(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "calendars: {closing: [2026-12-27..2026-12-28], same: [2026-12-31], new: []}\n---\nname: old-1\nkind: x\n"
    )
    words = ["-f", str(file)]
    assert diff_command.main(words, standalone_mode=False, obj=cluster.client) == DIFFERENT
    told = ["calendar closing: 2 more days, 1 fewer", "calendar new: 0 days"]
    assert capsys.readouterr().out.splitlines()[:2] == [f"~ {told[0]}", f"+ {told[1]}"]
    applied(cluster, words)
    assert capsys.readouterr().out.splitlines()[:2] == told
    assert cluster.calendars == {"closing": ["2026-12-27", "2026-12-28"], "same": ["2026-12-31"], "new": []}
    applied(cluster, [*words, "--json"])
    assert json.loads(capsys.readouterr().out)["calendars"] == [], "they are as in the file"


def test_a_file_may_have_pools_alone(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("pools: {dumps: 3}")
    applied(cluster, ["-f", str(tmp_path)])
    assert (capsys.readouterr().out, cluster.pools["dumps"]) == ("pool dumps: 1 -> 3\n", 3)


def test_two_that_apply_a_set_at_the_same_time_are_told(
    cluster: Cluster, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each deleted what the other had put, and both ended with success."""
    cluster.deleted_by_others = {"new-1"}
    with pytest.raises(click.ClickException, match=r"somebody else has changed tasks of the set meanwhile: new-1\. "):
        applied(cluster, words)
    assert "old-3: deleted" in capsys.readouterr().out


def test_a_closed_pipe_ends_no_work_midway(cluster: Cluster, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `rota apply ... | head -1`."""

    def closed(_: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("node.cli.applying.say", closed)
    with pytest.raises(BrokenPipeError):
        apply_command.callback.__wrapped__(  # type: ignore[union-attr]
            Api(False, cluster.client), (words[1],), "site", True, False, False, False
        )
    assert cluster.registered == ["new-1", "new-2"]


def test_a_task_that_is_too_long_is_named(cluster: Cluster, words: list[str]) -> None:
    cluster.too_long = "new-2"
    with pytest.raises(click.UsageError, match=r"new-2.json: task 'new-2' is too long: it has 0\.4 MiB, and at most 1"):
        applied(cluster, words)
    assert cluster.registered == ["old-1", "old-2", "old-3"]


def owned(cluster: Cluster) -> None:
    """Let the set `site` own three pools and a calendar: one used by a task that goes, one by others, two unused."""
    cluster.pools |= {"mine": 1, "shared": 1, "byhand": 1, "theirs": 1}
    cluster.owners = {"mine": "site", "shared": "site", "closing": "site", "theirs": "other"}
    cluster.users = {"mine": 1, "shared": 2}
    cluster.definitions = {"old-1": {"uses": {"mine": 1, "shared": 1}}}


def test_a_set_removes_the_pools_and_calendars_that_it_made_after_the_tasks_that_use_them(
    cluster: Cluster, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    owned(cluster)
    assert diff_command.main(words, standalone_mode=False, obj=cluster.client) == DIFFERENT
    shown = capsys.readouterr().out.splitlines()
    assert shown[5:-1] == [
        "- pool mine",
        "  pool shared: kept, though the files no longer have it: 1 task still uses it",
        "- calendar closing",
    ]
    assert shown[-1].endswith("as in the files; 2 of pools and calendars")
    applied(cluster, [*words, "--dry-run"])
    assert "pool mine: would be removed" in capsys.readouterr().out
    cluster.ending = {"mine": 2}  # the runs of the deleted task are being cancelled
    applied(cluster, words)
    assert capsys.readouterr().out.splitlines()[5:] == [
        "pool mine: removed",
        "pool shared: kept, though the files no longer have it: 1 task still uses it",
        "calendar closing: removed",
    ]
    assert set(cluster.pools) == {"dumps", "table", "shared", "byhand", "theirs"} and set(cluster.calendars) == {"same"}
    assert diff_command.main(words, standalone_mode=False, obj=cluster.client) == 0, "what is used is no difference"


def test_without_prune_nothing_is_removed(cluster: Cluster, words: list[str]) -> None:
    owned(cluster)
    applied(cluster, words[:-1])
    assert {"mine", "shared"} <= set(cluster.pools) and "closing" in cluster.calendars


def test_what_others_began_to_use_meanwhile_is_said_and_kept(
    cluster: Cluster, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    owned(cluster)
    call = cluster.client.call

    def also_used(method: str, target: str, **options: Any) -> Any:
        if method == "PATCH":
            cluster.users["mine"] = 1
        return call(method, target, **options)

    monkeypatch.setattr(cluster.client, "call", also_used)
    applied(cluster, [*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["removed"] == [{"kind": "calendar", "name": "closing"}]
    assert answer["still_used"] == [
        {"kind": "pool", "name": "mine", "why": "it is used"},
        {"kind": "pool", "name": "shared", "why": "1 task still uses it"},
    ]


def test_what_a_set_makes_is_its_own_and_what_was_there_is_not(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "pools: {dumps: 5, new: 1}\ncalendars: {closing: [], fresh: []}\n---\n{set: own, pools: {special: 1}}"
    )
    applied(cluster, ["-f", str(tmp_path)])
    assert cluster.owners == {"special": "own"}
    (tmp_path / "a.yaml").write_text("pools: {dumps: 4, newer: 1}\ncalendars: {closing: [], fresher: []}")
    applied(cluster, ["-f", str(tmp_path), "--set", "site"])
    assert cluster.owners == {"special": "own", "newer": "site", "fresher": "site"}


def test_what_another_set_made_is_shared_as_it_is_and_changed_only_if_it_is_adopted(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.owners = {"dumps": "other", "closing": "other"}
    words = ["-f", str(tmp_path), "--set", "site"]
    (tmp_path / "a.yaml").write_text("pools: {dumps: 1}\ncalendars: {closing: [2026-12-24]}\n---\n{name: a, kind: x}")
    applied(cluster, words)
    assert capsys.readouterr().out.splitlines() == ["a: created (version 1)"]
    (tmp_path / "a.yaml").write_text("pools: {dumps: 2}")
    with pytest.raises(
        click.UsageError, match=r"the pool 'dumps' belongs to the set 'other', .* --set other, .*--adopt"
    ):
        applied(cluster, words)
    (tmp_path / "a.yaml").write_text("calendars: {closing: []}")
    with pytest.raises(click.UsageError, match=r"the calendar 'closing' belongs to the set 'other'"):
        applied(cluster, ["-f", str(tmp_path)])
    (tmp_path / "a.yaml").write_text("pools: {dumps: 2}\ncalendars: {closing: [2026-12-24]}")
    applied(cluster, [*words, "--adopt"])
    assert capsys.readouterr().out.splitlines() == [
        "pool dumps: 1 -> 2, taken from the set other",
        "calendar closing: 1 day, taken from the set other",
    ]
    assert cluster.owners == {"dumps": "site", "closing": "site"}
    applied(cluster, [*words, "--adopt"])
    assert "taken" not in capsys.readouterr().out


def test_sets_of_pools_and_of_the_option_must_agree_and_no_set_is_emptied_for_a_pool(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("set: other\npools: {new: 2}\n---\n{name: a, kind: x, set: site}")
    with pytest.raises(click.UsageError, match="the pool new is of the set 'other', and --set says 'site'"):
        applied(cluster, ["-f", str(tmp_path), "--set", "site"])
    with pytest.raises(click.UsageError, match="pools or calendars of the set 'other', and no task of it"):
        applied(cluster, ["-f", str(tmp_path), "--prune"])
    assert cluster.owners == {} and "new" not in cluster.pools
