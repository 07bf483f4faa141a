"""The form for the params of a run: what it shows of each kind's model, and what is read from it."""

import doctest
import json
from typing import Any

import pytest

from node.web import params_form
from node.web.params_form import FIELDS_MAX, errors_by_field, fields_of, params_of
from tasks.definition.field_errors import FieldError
from tasks.installed_kinds import check_params, installed, load_kind, params_schema

COMMAND = params_schema(load_kind("tasks.command.kind:Command"))
BACKUP = params_schema(load_kind("tasks.backup.kind:Backup"))
ETL = params_schema(load_kind("spark_tasks.etl.kind:Etl"))

RUN = {
    "argv": ["sh", "-c", "cd /srv\n./sync\n"],
    "env": {"A": "010", "TOKEN": {"secret": "token"}},
    "cwd": "/srv",
}
COPY = {
    "destination": "s3://b/x",
    "source": {"type": "postgres", "url": "postgresql://h/db", "password": {"secret": "pg"}},
    "keep": 7,
}
PIPE: dict[str, Any] = {
    "source": {"type": "postgres", "url": "postgresql://h/db", "query": "SELECT 1\nFROM t", "partitions": 2},
    "transform": {"sql": "SELECT *, 'é\r' AS x FROM input"},
    "sink": {"type": "delta", "table": "/data/t", "mode": "append"},
}


def shown(schema: Any, params: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {field.label: (field.look, field.text) for field in fields_of(schema, params) if field.given}


def sent(schema: Any, params: dict[str, Any], **changed: str) -> tuple[dict[str, Any], list[FieldError]]:
    """What is read from the form of `params` as a browser sends it, with some fields changed."""
    fields = fields_of(schema, params)
    texts = {field.name: changed.get(field.label, field.text).replace("\n", "\r\n") for field in fields}
    return params_of(fields, texts)


def test_each_field_of_the_model_has_one_of_the_form() -> None:
    assert shown(BACKUP, COPY) == {
        "destination": ("line", "s3://b/x"),
        "source.type": ("choice", "postgres"),
        "source.url": ("line", "postgresql://h/db"),
        "source.password.secret": ("line", "pg"),
        "keep": ("yaml", "7"),
    }
    others = {field.label: (field.look, field.default) for field in fields_of(BACKUP, COPY) if not field.given}
    assert others == {
        "source.databases": ("yaml", ""),
        "source.parallel": ("line", ""),
        "source.role_hashes": ("choice", "false"),
        "source.fingerprint": ("choice", "rows"),
        "options": ("yaml", ""),
        "level": ("line", "3"),
        "accept_source": ("yaml", ""),
        "encryption": ("yaml", ""),
        "copies": ("yaml", ""),
        "bytes_per_s": ("line", ""),
        "lock_days": ("line", ""),
        "prune": ("choice", "here"),
    }
    assert shown(COMMAND, RUN)["argv"] == ("yaml", "- sh\n- -c\n- |\n  cd /srv\n  ./sync")
    assert shown(ETL, PIPE)["source.query"] == ("text", "SELECT 1\nFROM t")
    assert shown(ETL, PIPE)["transform.sql"][0] == "yaml", "what a browser shows as something else is escaped"


@pytest.mark.parametrize(("schema", "params"), [(COMMAND, RUN), (BACKUP, COPY), (ETL, PIPE), (None, PIPE)])
def test_what_is_not_touched_stays_exactly_as_it_is(schema: Any, params: dict[str, Any]) -> None:
    assert json.dumps(sent(schema, params)[0]) == json.dumps(params)


def test_what_is_changed_is_read_by_its_type_and_what_is_emptied_is_left_out() -> None:
    changed, errors = sent(
        BACKUP, COPY, **{"keep": "30", "source.url": "true", "level": "x", "source.password.secret": ""}
    )
    assert errors == []
    assert changed == {
        "destination": "s3://b/x",
        "source": {"type": "postgres", "url": "true"},
        "keep": 30,
        "level": "x",
    }
    by_field, others = errors_by_field(
        fields_of(BACKUP, COPY), check_params(load_kind("tasks.backup.kind:Backup"), changed, bound=False)
    )
    assert 'param:["level"]' in by_field
    assert others or by_field
    changed, errors = sent(COMMAND, RUN, argv="[echo, 010]", cwd="", env="A: {secret: s}")
    assert (changed, errors) == ({"argv": ["echo", 8], "env": {"A": {"secret": "s"}}}, [])
    argv = shown(COMMAND, RUN)["argv"][1]
    assert sent(COMMAND, RUN, argv=argv.replace("sync", "copy"))[0]["argv"] == ["sh", "-c", "cd /srv\n./copy\n"]
    for last in ("x", "x\n", "x\n\n", "x\n\n\n"):
        argv = shown(COMMAND, {"argv": ["b", last]})["argv"][1]
        assert sent(COMMAND, {"argv": ["b", last]}, argv=argv.replace("- b", "- c"))[0]["argv"] == ["c", last]
    _, errors = sent(COMMAND, RUN, argv="- [", env="a: 1\n---\nb: 2\n")
    assert [error.field for error in errors] == ["params.argv", "params.env"]


@pytest.mark.parametrize(("text", "said"), [("- x", "fields and their values"), ("a: [", "cannot be read as YAML")])
def test_params_of_an_unknown_model_are_one_field(text: str, said: str) -> None:
    [field] = fields_of(None, RUN)
    assert said in params_of([field], {field.name: text})[1][0].message
    assert params_of([field], {field.name: "a: 1"}) == ({"a": 1}, [])
    assert params_of([field], {field.name: " "}) == ({}, [])


def test_odd_values_survive() -> None:
    schema = {"properties": {name: {"type": of} for name, of in (("s", "string"), ("n", "number"), ("b", "boolean"))}}
    odd: tuple[Any, ...] = (
        "",
        " ",
        "\x00",
        "a\r\nb",
        "\ufeff",
        "\u2028",
        "x" * 5000,
        None,
        True,
        1,
        1.0,
        -0.0,
        2**63,
        [],
        {},
        [[]],
    )
    for value in odd:
        for name in ("s", "n", "b", "unknown"):
            read, errors = sent(schema, {name: value})
            assert (json.dumps(read), errors) == (json.dumps({name: value}), []), (name, value)


def test_a_model_with_very_many_fields_is_one_field() -> None:
    schema = {"properties": {f"f{number}": {"type": "string"} for number in range(FIELDS_MAX + 1)}}
    assert [field.path for field in fields_of(schema, {})] == [()]


def test_every_installed_kind_has_a_form() -> None:
    for entry in installed().values():
        fields = fields_of(params_schema(load_kind(entry.target)), {})
        assert len({field.name for field in fields}) == len(fields) > 1
        assert all(field.about for field in fields), entry.name


def test_examples() -> None:
    assert doctest.testmod(params_form).failed == 0
