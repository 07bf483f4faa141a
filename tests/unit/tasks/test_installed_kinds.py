"""Finding kinds and checking their params."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from spark_tasks.ingest.kind import Ingest
from tasks.backup.kind import Backup
from tasks.command import Command
from tasks.field_errors import FieldError
from tasks.installed_kinds import GROUP, KindEntry, KindError, check_params, installed, load, params_schema
from tasks.spec import Spec


def point(name: str, target: str) -> EntryPoint:
    return EntryPoint(name=name, value=target, group=GROUP)


def test_our_own_kinds_are_installed() -> None:
    kinds = installed()
    assert kinds["command"] == KindEntry("command", "tasks.command:Command")
    assert {"backup", "ingest"} <= set(kinds)


def test_two_packages_may_not_claim_one_name() -> None:
    with pytest.raises(KindError, match=r"'etl' .*a:A.* b:B"):
        installed([point("etl", "a:A"), point("etl", "b:B")])


def test_one_kind_found_twice_is_one() -> None:
    assert list(installed([point("etl", "a:A"), point("etl", "a:A")])) == ["etl"]


def test_loading() -> None:
    found: object = load("tasks.command:Command")
    assert found is Command


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("tasks.command", "not module:Class"),
        ("no_such_module:Kind", "No module named"),
        ("tasks.command:Absent", "Absent"),
        ("pathlib:Path", "no class Params"),
        ("tasks.command:CommandFailed", "no class Params"),
        ("tests.unit.tasks.test_installed_kinds:WithoutRun", "method run"),
    ],
)
def test_a_kind_that_cannot_be_used_is_named_with_the_reason(target: str, says: str) -> None:
    with pytest.raises(KindError, match=says):
        load(target)


class WithoutRun:
    Params = Command.Params


def test_params_are_checked_field_by_field() -> None:
    assert check_params(Command, {"argv": ["true"]}, bound=False) == []
    assert check_params(Command, {"argv": [], "cwd": 7, "shell": True}, bound=False) == [
        FieldError("params.argv", "List should have at least 1 item after validation, not 0"),
        FieldError("params.cwd", "must be text (in YAML, put yes, no, on, off, numbers and dates in quotes)"),
        FieldError("params.shell", "there is no such field"),
    ]


@pytest.mark.parametrize(
    ("params", "field", "says"),
    [
        ({"source": {"type": "sqlite"}, "destination": "/b"}, "params.source.path", "is missing"),
        ({"source": {"type": "tape"}, "destination": "/b"}, "params.source", "'postgres', 'sqlite', 'folder'"),
        (
            {"source": {"type": "sqlite", "path": "/a"}, "destination": "no://b"},
            "params.destination",
            "not a file system",
        ),
        (
            {
                "source": {"type": "postgres", "url": "postgresql://h/d", "password": {"secret": "../x"}},
                "destination": "/b",
            },
            "params.source.password.secret",
            "pattern",
        ),
        ({"source": {"type": "sqlite", "path": "/a"}, "destination": "/b", "keep": 0}, "params.keep", "greater than"),
    ],
)
def test_a_field_is_named_as_it_was_written(params: dict[str, object], field: str, says: str) -> None:
    [error] = check_params(Backup, params, bound=False)
    assert error.field == field
    assert says in error.message
    assert not error.message.startswith("Value error")


FOLDER = {"type": "folder", "path": "/srv"}
SQLITE = {"type": "sqlite", "path": "/srv/a.db"}
POSTGRES = {"type": "postgres", "url": "postgresql://h/d"}
TABLE = {"format": "csv", "table": "/table"}


@pytest.mark.parametrize(
    ("kind", "params", "fields"),
    [
        (Backup, {"source": FOLDER, "destination": "/b"}, ["params.source"]),
        (Backup, {"source": SQLITE, "destination": "s3://b"}, ["params.source"]),
        (Backup, {"source": FOLDER | {"shared": True}, "destination": "/b"}, []),
        (Backup, {"source": POSTGRES, "destination": "/b"}, []),
        (Ingest, TABLE | {"source": "/data/*.csv"}, ["params.source", "params.table"]),
        (Ingest, TABLE | {"source": ["s3://b/*.csv", "file:///data/*.csv"]}, ["params.source", "params.table"]),
        (Ingest, TABLE | {"source": "s3://b/*.csv"}, ["params.table"]),
        (Ingest, TABLE | {"source": "/data/*.csv", "shared": True}, []),
        (Command, {"argv": ["true"]}, []),
    ],
)
def test_data_on_a_nodes_own_disk_wants_a_task_that_is_bound(
    kind: type[Any], params: dict[str, object], fields: list[str]
) -> None:
    told = check_params(kind, params, bound=False)
    assert [error.field for error in told] == fields
    assert all("group: {node: ID}" in error.message and "`shared: true`" in error.message for error in told)
    assert check_params(kind, params, bound=True) == []


def test_a_task_is_bound_by_its_group_and_not_by_its_pin() -> None:
    spec = {"name": "a", "kind": "backup", "pin": "node-1"}
    assert not Spec.model_validate(spec).bound
    assert not Spec.model_validate(spec | {"group": {"zone": "a"}}).bound
    assert Spec.model_validate(spec | {"group": {"node": "node-1"}}).bound


def test_items_of_lists_and_variables_are_named_too() -> None:
    told = check_params(Command, {"argv": ["a", 7], "env": {"A": {"secret": "../x"}, "B": {"env": "1"}}}, bound=False)
    assert [error.field for error in told] == ["params.argv[1]", "params.env.A.secret", "params.env.B.env"]


@pytest.mark.parametrize(
    "params",
    [{}, {"argv": "true"}, {"argv": ["a\0b"]}, {"argv": ["a"], "env": {"A=B": "x"}}, {"argv": ["a"], "env": {"A": {}}}],
)
def test_bad_params_of_a_command(params: dict[str, object]) -> None:
    assert check_params(Command, params, bound=False)


def test_the_schema_describes_the_params() -> None:
    assert set(params_schema(Command)["properties"]) == {"argv", "env", "cwd"}
