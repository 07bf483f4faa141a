"""/openapi.json agrees with the table of routes, and with the contract of the API."""

import re
from typing import Any

import pytest

from node.http.api.openapi import openapi_document
from node.http.app import ENDPOINTS
from node.http.door.problems import CATALOGUE
from tasks.definition.spec import Spec

CONTRACT = """
GET /healthz healthz
GET /readyz readyz
GET /v1/cluster cluster
POST /v1/cluster/found found
GET /v1/settings settings
PATCH /v1/settings change_settings
GET /v1/cluster/saved saved
POST /v1/cluster/saved put_back
GET /v1/members members
POST /v1/members add_member
DELETE /v1/members/{id} remove_member
POST /v1/members/{id}/drain drain
POST /v1/members/{id}/undrain undrain
GET /v1/vitals vitals
GET /v1/kinds kinds
GET /v1/pools pools
GET /v1/calendars calendars
GET /v1/calendars/{name} calendar
PUT /v1/calendars/{name} put_calendar
DELETE /v1/calendars/{name} delete_calendar
GET /v1/blackouts blackouts
PUT /v1/blackouts/{name} put_blackout
DELETE /v1/blackouts/{name} end_blackout
GET /v1/week week
PUT /v1/tasks/{name} put_task
POST /v1/tasks post_tasks
GET /v1/tasks tasks
GET /v1/tasks/{name} task
DELETE /v1/tasks/{name} delete_task
POST /v1/tasks/{name}/pause pause
POST /v1/tasks/{name}/resume resume
GET /v1/tasks/{name}/times due_times
GET /v1/tasks/{name}/owner owner
GET /v1/plan plan
GET /v1/placement/what-if what_if
GET /v1/tasks/{name}/why why
GET /v1/graph graph
GET /v1/tasks/{name}/graph task_graph
GET /v1/bootstraps bootstraps
GET /v1/tasks/bootstrap/{id}/owner feeder
POST /v1/tasks/{name}/runs start_run
POST /v1/tasks/{name}/actions/{action} start_action
GET /v1/tasks/{name}/params params_at
GET /v1/tasks/{name}/runs task_runs
GET /v1/runs runs
GET /v1/runs/{run_id} run
DELETE /v1/runs/{run_id} cancel_run
GET /v1/backfills backfills
GET /v1/backfills/{number} backfill
POST /v1/tasks/{name}/backfills start_backfill
POST /v1/backfills/{number}/pause pause_backfill
POST /v1/backfills/{number}/resume resume_backfill
DELETE /v1/backfills/{number} cancel_backfill
GET /v1/channels channels
GET /v1/channels/{name} channel
PUT /v1/channels/{name} put_channel
DELETE /v1/channels/{name} delete_channel
POST /v1/channels/{name}/test test_channel
GET /v1/channels/{name}/digest channel_digest
GET /v1/runs/{run_id}/log log
GET /v1/events events
GET /v1/events/kept kept_events
GET /metrics metrics
GET /openapi.json openapi
GET /docs docs
GET /docs/{asset} asset
POST /peer/progress peer_progress
GET /peer/members peer_members
POST /peer/members peer_join
GET /peer/log peer_log
GET /peer/kinds/{kind} peer_schema
GET /peer/kinds/{kind}/offer peer_offer
POST /peer/check peer_check
GET /peer/history peer_history
POST /peer/bootstrap peer_bootstrap
""".split("\n")[1:-1]
"""Method, path and operationId: clients that are generated name their functions by it, so it stays."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document(ENDPOINTS, secured=True)


def _operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_of_the_contract_is_served() -> None:
    assert set(CONTRACT) <= {f"{one.method} {one.path} {one.handler.__name__}" for one in ENDPOINTS}


def test_an_operation_has_the_id_that_the_contract_gives_it(document: dict[str, Any]) -> None:
    ids = {name: operation["operationId"] for name, operation in _operations(document).items()}
    assert ids == {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in CONTRACT}


def test_every_route_is_described_once_with_a_summary(document: dict[str, Any]) -> None:
    operations = _operations(document)
    assert len(operations) == len(ENDPOINTS)
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)
    for name, operation in operations.items():
        assert operation["summary"], name
        placed = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert placed == set(re.findall(r"{(\w+)}", name)), name


def test_parameters_and_bodies_come_from_the_models(document: dict[str, Any]) -> None:
    operations = _operations(document)
    asked = {parameter["name"] for parameter in operations["GET /v1/tasks"]["parameters"]}
    assert {"kind", "owner", "limit", "after", "consistent", "Rota-Index"} <= asked
    [limit] = [one for one in operations["GET /v1/tasks"]["parameters"] if one["name"] == "limit"]
    assert (limit["schema"]["default"], limit["schema"]["maximum"]) == (100, 1000)
    sent = operations["PUT /v1/tasks/{name}"]["requestBody"]["content"]["application/json"]["schema"]
    assert sent == {"$ref": "#/components/schemas/NamedSpec"}
    assert "overlap" in document["components"]["schemas"]["Spec"]["properties"]


def test_a_name_in_the_path_need_not_be_in_the_body(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Spec"]["required"] == ["name", "kind"]
    assert schemas["NamedSpec"]["required"] == ["kind"]
    assert schemas["NamedSpec"]["examples"] == schemas["Spec"]["examples"]
    assert schemas["NamedSpec"]["properties"] == schemas["Spec"]["properties"]


def test_no_alternative_has_an_object_or_a_list_as_its_default(document: dict[str, Any]) -> None:
    """Generators of clients leave out an endpoint that takes one: openapi-python-client 0.29 did."""
    refused = [
        f"{model}.{name}"
        for model, schema in document["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
        if ("anyOf" in field or "oneOf" in field) and isinstance(field.get("default"), dict | list)
    ]
    assert refused == []
    labels = document["components"]["schemas"]["Spec"]["properties"]["labels"]
    assert (labels["type"], labels["default"], labels["maxProperties"]) == ("object", {}, 100)
    assert Spec.model_validate({"name": "a", "kind": "copy", "group": None, "labels": None}).labels == {}


def test_errors_are_described_as_problem_documents(document: dict[str, Any]) -> None:
    for name, operation in _operations(document).items():
        for status, response in operation["responses"].items():
            assert set(response["headers"]) == {"Rota-Index", "Rota-Epoch"}
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], name
    put = _operations(document)["PUT /v1/tasks/{name}"]["responses"]
    assert {"200", "201", "400", "401", "412", "413", "415", "422", "503", "504"} <= put.keys()


def test_security_is_described(document: dict[str, Any]) -> None:
    operations = _operations(document)
    assert operations["GET /healthz"]["security"] == operations["GET /readyz"]["security"] == []
    assert operations["GET /v1/tasks"]["security"] == [{"token": []}]
    assert operations["GET /peer/log"]["security"] == [{"member": []}]
    open_document = openapi_document(ENDPOINTS, secured=False)
    assert _operations(open_document)["GET /v1/tasks"]["security"] == []


def test_every_reference_has_a_definition(document: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for inner in value.values() for found in references(inner)]
        return [found for inner in value for found in references(inner)] if isinstance(value, list) else []

    for reference in set(references(document)):
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_the_problems_that_routes_name_are_in_the_catalogue() -> None:
    assert {problem for endpoint in ENDPOINTS for problem in endpoint.problems} <= CATALOGUE.keys()
