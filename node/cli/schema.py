"""`rota schema`: the JSON Schema of task files, with which editors complete and check such files."""

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from node.cli.api import Api, api_command
from tasks.installed_kinds import KindError, installed, load_kind, params_schema

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@click.command("schema")
@click.option(
    "--cluster", "of_cluster", is_flag=True, help="With the kinds that the cluster offers, not those installed here."
)
@api_command
def schema_command(api: Api, of_cluster: bool) -> None:
    """Print the JSON Schema of task files, for editors and for CI.

    No cluster is asked, unless --cluster is given. The schema includes the params of each kind that is installed here.
    """
    schemas = _offered(api) if of_cluster else _installed()
    click.echo(json.dumps(file_schema(schemas), indent=2))


def _offered(api: Api) -> dict[str, Mapping[str, Any]]:
    return {item["kind"]: item["params"] for item in api.client.items("/v1/kinds") if item["params"] is not None}


def _installed() -> dict[str, Mapping[str, Any]]:
    schemas: dict[str, Mapping[str, Any]] = {}
    for name, entry in installed().items():
        try:
            schemas[name] = params_schema(load_kind(entry.target))
        except KindError as error:
            click.echo(f"rota: the params of {name} are left open: {error}", err=True)
    return schemas


def file_schema(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON Schema of a file with one task or a list of tasks, or with pools and calendars.

    `kinds` are the schemas of each kind's params.

    A kind that is not in `kinds` may have any params, because a node may offer it.
    """
    # Imported here, because the models take as long to import as everything else that a command needs.
    from tasks.definition.calendars import CALENDAR_PATTERN
    from tasks.definition.pools import CAPACITY_MAX, POOL_PATTERN
    from tasks.definition.spec import Spec

    task = Spec.model_json_schema()
    defs: dict[str, Any] = dict(task.pop("$defs", {}))
    task["allOf"] = [
        {
            # In params with a template, text may stand for a value of any type.
            "if": {"properties": {"kind": {"const": kind}, "template": {"const": False}}, "required": ["kind"]},
            "then": {
                "properties": {"params": _within(params, f"params-of-{kind}", defs)},
                # A task without `params` counts as one with {}.
                **({"required": ["params"]} if params.get("required") else {}),
            },
        }
        for kind, params in sorted(kinds.items())
    ]
    task["properties"]["kind"] = {**task["properties"]["kind"], "examples": sorted(kinds)}
    defs["Task"] = task
    amounts = {"type": "integer", "minimum": 0, "maximum": CAPACITY_MAX}
    pools = {"type": "object", "propertyNames": {"pattern": POOL_PATTERN}, "additionalProperties": amounts}
    days = {"type": "array", "items": {"type": "string", "examples": ["2026-12-24", "2026-12-27..2027-01-03"]}}
    ics = {
        "type": "object",
        "properties": {"ics": {"type": "string"}},
        "required": ["ics"],
        "additionalProperties": False,
    }
    calendars = {
        "type": "object",
        "propertyNames": {"pattern": CALENDAR_PATTERN},
        "additionalProperties": {"anyOf": [days, ics]},
    }
    beside = {"pools": pools, "calendars": calendars}
    return {
        "$schema": DIALECT,
        "title": "Tasks of Rota",
        "anyOf": [
            {"$ref": "#/$defs/Task"},
            {"type": "array", "items": {"$ref": "#/$defs/Task"}},
            {"type": "object", "properties": beside, "minProperties": 1, "additionalProperties": False},
        ],
        "$defs": defs,
    }


def _within(schema: Mapping[str, Any], name: str, defs: dict[str, Any]) -> dict[str, Any]:
    """Put `schema` into `defs` under `name`, with its own references changed to match, and return a reference to it."""
    at = f"#/$defs/{name}"
    defs[name] = _moved(dict(schema), at)
    return {"$ref": at}


def _moved(value: Any, at: str) -> Any:
    if isinstance(value, dict):
        return {
            key: at + inner.removeprefix("#") if key == "$ref" and isinstance(inner, str) else _moved(inner, at)
            for key, inner in value.items()
        }
    return [_moved(item, at) for item in value] if isinstance(value, list) else value
