"""Finding kinds and checking their params."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from spark_tasks.ingest.kind import Ingest
from tasks.backup.kind import Backup
from tasks.command.kind import Command
from tasks.definition.field_errors import FieldError
from tasks.definition.spec import Spec
from tasks.installed_kinds import (
    GROUP,
    InstalledKinds,
    KindEntry,
    KindError,
    check_params,
    installed,
    load_kind,
    params_schema,
)


def point(name: str, target: str) -> EntryPoint:
    return EntryPoint(name=name, value=target, group=GROUP)


def test_rotas_own_kinds_are_installed() -> None:
    kinds = installed()
    assert kinds["command"] == KindEntry("command", "tasks.command.kind:Command")
    assert {"backup", "ingest"} <= set(kinds)


def test_two_packages_with_one_kind_name_are_refused() -> None:
    with pytest.raises(KindError, match=r"'etl' .*a:A.* b:B"):
        installed([point("etl", "a:A"), point("etl", "b:B")])


def test_a_kind_found_twice_counts_once() -> None:
    assert list(installed([point("etl", "a:A"), point("etl", "a:A")])) == ["etl"]


def test_an_entry_point_is_loaded_or_its_error_reported() -> None:
    found: object = load_kind("tasks.command.kind:Command")
    assert found is Command


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("tasks.command.kind", "not module:Class"),
        ("no_such_module:Kind", "No module named"),
        ("tasks.command.kind:Absent", "Absent"),
        ("pathlib:Path", "no class Params"),
        ("tasks.command.kind:CommandFailed", "no class Params"),
        ("tests.unit.tasks.test_installed_kinds:WithoutRun", "method run"),
    ],
)
def test_an_unusable_kind_is_reported_with_the_reason(target: str, says: str) -> None:
    with pytest.raises(KindError, match=says):
        load_kind(target)


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
        (
            {"source": {"type": "tape"}, "destination": "/b"},
            "params.source",
            "'postgres', 'postgres_physical', 'mariadb', 'sqlite', 'folder', 'stream'",
        ),
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
def test_a_field_is_reported_under_its_name_in_the_spec(params: dict[str, object], field: str, says: str) -> None:
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
def test_local_data_requires_a_task_bound_to_a_node(
    kind: type[Any], params: dict[str, object], fields: list[str]
) -> None:
    told = check_params(kind, params, bound=False)
    assert [error.field for error in told] == fields
    assert all("group: {node: ID}" in error.message and "`shared: true`" in error.message for error in told)
    assert check_params(kind, params, bound=True) == []


def test_a_task_is_bound_by_group_not_by_pin() -> None:
    spec = {"name": "a", "kind": "backup", "pin": "node-1"}
    assert not Spec.model_validate(spec).bound
    assert not Spec.model_validate(spec | {"group": {"zone": "a"}}).bound
    assert Spec.model_validate(spec | {"group": {"node": "node-1"}}).bound


def test_list_items_and_variables_are_named_in_errors() -> None:
    told = check_params(Command, {"argv": ["a", 7], "env": {"A": {"secret": "../x"}, "B": {"env": "1"}}}, bound=False)
    assert [error.field for error in told] == ["params.argv[1]", "params.env.A.secret", "params.env.B.env"]


@pytest.mark.parametrize(
    "params",
    [{}, {"argv": "true"}, {"argv": ["a\0b"]}, {"argv": ["a"], "env": {"A=B": "x"}}, {"argv": ["a"], "env": {"A": {}}}],
)
def test_invalid_command_params_are_refused(params: dict[str, object]) -> None:
    assert check_params(Command, params, bound=False)


def test_the_schema_describes_the_params() -> None:
    assert set(params_schema(Command)["properties"]) == {"argv", "env", "cwd"}


def test_kinds_say_why_they_cannot_run_for_past_times() -> None:
    kinds = InstalledKinds(installed())
    postgres = {"type": "postgres", "url": "postgresql://rota@db.internal/orders", "table": "orders"}
    whole = {"source": postgres, "sink": {**postgres, "table": "copy", "mode": "append"}}
    incremental = whole | {"incremental": {"cursor": "at"}}
    assert "rota etl reset" in kinds.no_backfill("etl", incremental, "skip")
    assert kinds.no_backfill("etl", whole, "skip") == ""
    for kind in ("etl", "ingest", "backup", "wal"):
        assert "its runs build upon one another" in kinds.no_backfill(kind, whole, "allow")
    assert [kinds.no_backfill(kind, {}, "allow") for kind in ("command", "unknown")] == ["", ""]
