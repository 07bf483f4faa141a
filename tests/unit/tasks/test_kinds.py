"""Checks of params by installed kinds."""

import logging
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, field_validator
from pydantic_core import from_json

from tasks.installed_kinds import InstalledKinds, KindEntry, installed
from tasks.kind import Context
from tasks.secret import Reference, SecretEnv, SecretFile
from testkit.http.hostile import spoilt

FOLDER = {"type": "folder", "path": "/srv"}
BACKUP = {"source": FOLDER, "destination": "s3://a/b", "options": {"key": {"env": "KEY"}}, "level": 3, "keep": 7}
RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("command", {"argv": ["true"], "env": {"A": "b"}, "cwd": "/"}),
    ("backup", BACKUP),
    ("backup", {**BACKUP, "destination": "/mnt/backups"}),
    ("backup", {**BACKUP, "source": {"type": "sqlite", "path": "/a.db"}}),
    ("backup", {**BACKUP, "source": {"type": "postgres", "url": "postgresql://a@b/c", "password": {"secret": "p"}}}),
    ("ingest", {"source": "/a/*.csv", "format": "csv", "table": "/b"}),
]


class Hasty:
    """A kind whose check raises."""

    class Params(BaseModel):
        source: str

        @field_validator("source")
        @classmethod
        def _known(cls, value: str) -> str:
            return {"x": "y"}[value]

    def run(self, ctx: Any) -> None:
        return None


def test_a_kind_whose_check_raises_counts_as_an_error_of_the_params(caplog: pytest.LogCaptureFixture) -> None:
    kinds = InstalledKinds({"hasty": KindEntry("hasty", "tests.unit.tasks.test_kinds:Hasty")})
    assert not kinds.check("hasty", {"source": "x"}, bound=False)
    [error] = kinds.check("hasty", {"source": "a secret"}, bound=False)
    assert (error.field, "KeyError" in error.message) == ("params", True)
    [line] = caplog.messages
    assert "test_kinds.py" in line
    assert "a secret" not in line
    with pytest.raises(KeyError):
        kinds.check("absent", {}, bound=False)


def test_a_field_is_reported_under_its_name_in_the_spec() -> None:
    [error] = InstalledKinds(installed()).check("command", {"argv": ["true"], "env": {"1": []}}, bound=False)
    assert error.field == "params.env.1", "a key of digits is no place in a list"


@pytest.mark.parametrize(("kind", "params"), RIGHT)
def test_the_built_in_kinds_check_any_params_without_raising(
    kind: str, params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    kinds = InstalledKinds(installed())
    for body in spoilt(params):
        try:
            given = from_json(body, allow_inf_nan=False)
        except ValueError:
            continue
        kinds.check(kind, given, bound=False)
    assert not caplog.messages


def test_the_secrets_that_params_name_are_told_and_none_where_they_cannot_be_read() -> None:
    kinds = InstalledKinds({**installed(), "absent": KindEntry("absent", "tests.unit.tasks.test_kinds:Absent")})
    postgres = {"type": "postgres", "url": "postgresql://a@b/c", "password": {"secret": "p"}}
    found = kinds.references("backup", {**BACKUP, "source": postgres})
    assert {reference.model_dump_json() for reference in found} == {'{"env":"KEY"}', '{"secret":"p"}'}
    assert kinds.references("backup", {}) == ()
    assert kinds.references("absent", {}) == ()
    assert kinds.references("unknown", {}) == ()


class Acts(BaseModel):
    key: Reference


class Acting:
    """A kind with an action whose args hold a secret."""

    Params = Acts
    actions: ClassVar[dict[str, type[BaseModel]]] = {"preview": Acts}

    def run(self, ctx: Context[Acts]) -> None:
        raise NotImplementedError


def test_references_are_those_of_the_params_and_of_an_actions_args() -> None:
    kinds = InstalledKinds({"acting": KindEntry("acting", "tests.unit.tasks.test_kinds:Acting")})
    params: dict[str, Any] = {"key": {"secret": "a"}}
    args: dict[str, Any] = {"key": {"env": "B"}}
    assert kinds.references("acting", params) == [SecretFile(secret="a")]
    assert kinds.references("acting", params, "preview", args) == [SecretFile(secret="a"), SecretEnv(env="B")]
    for action, given in (("preview", {}), ("preview", {"key": "b"}), ("unknown", args)):
        assert kinds.references("acting", params, action, given) == (), "the attempt says what is wrong"
    assert kinds.references("acting", {"key": "a"}) == ()


ETL = {
    "source": {"type": "postgres", "url": "postgresql://a@b/c", "query": "select 1 as n"},
    "sink": {"type": "parquet", "folder": "/lake/x"},
}


@pytest.mark.parametrize(
    ("kind", "one", "other", "fields"),
    [
        ("command", {"argv": ["1"], "cwd": "/1"}, {"argv": ["2"], "cwd": "/2"}, []),
        ("ingest", {"source": "/a/1*.csv"}, {"source": "/a/2*.csv"}, []),
        ("ingest", {"source": "/a/1/*.csv"}, {"source": "/a/2/*.csv"}, ["params.source"]),
        ("ingest", {"source": "s3://b/1/*.csv"}, {"source": "s3://b/2/*.csv"}, []),
        ("ingest", {"source": "s3://b1/*.csv"}, {"source": "s3://b2/*.csv"}, ["params.source"]),
        ("ingest", {"table": "/b1"}, {"table": "/b2"}, ["params.table"]),
        ("backup", {"destination": "s3://b1"}, {"destination": "s3://b2"}, ["params.destination"]),
        ("backup", {"options": {"key": {"env": "A"}}}, {"options": {"key": {"env": "B"}}}, ["params"]),
        ("backup", {"keep": 1}, {"keep": 2}, []),
        ("backup", {"keep": 1}, {"keep": 0}, ["params.keep"]),
    ],
)
def test_what_a_task_reaches_cannot_differ_between_occurrences(
    kind: str, one: dict[str, Any], other: dict[str, Any], fields: list[str]
) -> None:
    whole = {"ingest": RIGHT[-1][1], "backup": BACKUP, "command": {}}[kind]
    kinds = InstalledKinds(installed())
    found = kinds.check(kind, {**whole, **one}, bound=True, other={**whole, **other})
    assert [error.field for error in found] == fields
    assert not fields or fields == ["params.keep"] or "cannot depend on the occurrence" in found[0].message
