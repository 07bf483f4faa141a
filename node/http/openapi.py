"""/openapi.json, OpenAPI 3.1: written from the endpoints and the models that check what is sent."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from node.http import responses
from node.http.auth import JSON
from node.http.endpoint import Endpoint, Says
from node.http.problems import CATALOGUE, MEDIA_TYPE, TYPE_PREFIX

_REF: Final = "#/components/schemas/{model}"
_ALWAYS: Final = ("bad-request", "misdirected", "invalid", "internal", "behind", "not-ready", "media-type")
_WITH_TOKEN: Final = ("unauthorized",)
_OF_CLIENTS: Final = ("foreign-page",)
_OF_MEMBERS: Final = ("other-cluster", "request-timeout", "too-large")
_WITH_BODY: Final = ("request-timeout", "too-large")
_READS: Final = ("no-quorum",)

_ABOUT: Final = """The list of who is on duty, kept by a cluster of equal members: any of them answers anything.

Every answer bears `Rota-Index` (what is applied there) and `Rota-Epoch`. A request that bears `Rota-Index: n` waits
until n is applied, so that you read what you wrote. What goes wrong is told as a problem document (RFC 9457)."""

_HEADERS: Final[dict[str, Any]] = {
    "Rota-Index": {"description": "The last index applied at this member", "schema": {"type": "integer"}},
    "Rota-Epoch": {"description": "Counts what changes placement", "schema": {"type": "integer"}},
}


@lru_cache(maxsize=4)
def described(endpoints: tuple[Endpoint, ...], *, secured: bool) -> dict[str, Any]:
    """The document for these endpoints. `secured`: clients need a token."""
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, secured=secured)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": version("rota"), "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "./"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.definitions.items())),
            "headers": _HEADERS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "ROTA_TOKEN"},
                "page": {"type": "http", "scheme": "basic", "description": "ROTA_TOKEN as password, for a browser"},
                "member": {
                    "type": "http",
                    "scheme": "Rota",
                    "description": "Signed; made from ROTA_SECRET",
                },
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: "_Schemas", *, secured: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__
        if endpoint.access != "member"
        else f"peer_{endpoint.handler.__name__}",
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint, schemas),
        "responses": _responses(endpoint, schemas, secured=secured),
        "security": _security(endpoint, secured=secured),
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.body is not None:
        content = {JSON: {"schema": schemas.of(endpoint.body, "validation")}}
        operation["requestBody"] = {"required": endpoint.body_needed, "content": content}
    return operation


_EXAMPLES: Final = {"name": {"example": "hello"}}
"""As in the spec's own example: in the path and in the body a task has one name."""


def _security(endpoint: Endpoint, *, secured: bool) -> list[dict[str, list[str]]]:
    if endpoint.access == "member":
        return [{"member": []}]
    if endpoint.access == "anyone" or not secured:
        return []
    return [{"token": []}, {"page": []}] if endpoint.access == "page" else [{"token": []}]


def _parameters(endpoint: Endpoint, schemas: "_Schemas") -> list[dict[str, Any]]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} | _EXAMPLES.get(name, {})
        for name in endpoint.path_parameters
    ]
    if endpoint.query is not None:
        schema = schemas.inline(endpoint.query)
        for name, of in schema["properties"].items():
            described = {key: value for key, value in of.items() if key not in ("title", "description")}
            parameter = {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                "schema": described,
            }
            if "description" in of:
                parameter["description"] = of["description"]
            parameters.append(parameter)
    if endpoint.reads:
        about = "Wait for a commit first, so that nothing older is told"
        parameters.append({"name": "consistent", "in": "query", "description": about, "schema": {"type": "boolean"}})
    for name, about in endpoint.headers.items():
        parameters.append({"name": name, "in": "header", "description": about, "schema": {"type": "string"}})
    about = "Wait until this index is applied here"
    parameters.append({"name": "Rota-Index", "in": "header", "description": about, "schema": {"type": "integer"}})
    return parameters


def _responses(endpoint: Endpoint, schemas: "_Schemas", *, secured: bool) -> dict[str, Any]:
    answered = {str(status): _answer(says, schemas) for status, says in sorted(endpoint.answers.items())}
    kinds = [*endpoint.problems, *_ALWAYS]
    if endpoint.access == "member" or (secured and endpoint.access != "anyone"):
        kinds += _WITH_TOKEN
    if endpoint.access == "member":
        kinds += _OF_MEMBERS
    if endpoint.access != "anyone":
        kinds += _OF_CLIENTS
    if endpoint.body is not None:
        kinds += _WITH_BODY
    if endpoint.reads:
        kinds += _READS
    by_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(CATALOGUE[kind][0], []).append(kind)
    for status, told in sorted(by_status.items()):
        answered[str(status)] = {
            "description": "; ".join(f"{CATALOGUE[kind][1]} (`{TYPE_PREFIX}{kind}`)" for kind in told),
            "headers": _header_refs(),
            "content": {MEDIA_TYPE: {"schema": schemas.of(responses.ProblemDocument, "serialization")}},
        }
    return answered


def _answer(says: Says, schemas: "_Schemas") -> dict[str, Any]:
    answer: dict[str, Any] = {"description": says.meaning, "headers": _header_refs()}
    if says.body is bytes:
        answer["content"] = {says.media_type: {}}
    elif says.body is not None:
        answer["content"] = {says.media_type: {"schema": schemas.of(says.body, "serialization")}}
    return answer


def _header_refs() -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}


class _Schemas:
    """The schemas of all bodies, with one set of definitions."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        wanted: dict[tuple[int, JsonSchemaMode], Any] = {}
        for endpoint in endpoints:
            if endpoint.body is not None:
                wanted[id(endpoint.body), "validation"] = endpoint.body
            for says in endpoint.answers.values():
                if says.body not in (None, bytes):
                    wanted[id(says.body), "serialization"] = says.body
        wanted[id(responses.ProblemDocument), "serialization"] = responses.ProblemDocument
        adapters = [(key, mode, TypeAdapter(of)) for (key, mode), of in wanted.items()]
        self._found, rest = TypeAdapter.json_schemas(adapters, ref_template=_REF)
        self.definitions: dict[str, Any] = rest.get("$defs", {})

    def of(self, body: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """The schema of a body: a reference, mostly."""
        return self._found[id(body), mode]

    def inline(self, query: type[BaseModel]) -> dict[str, Any]:
        """The schema of a query's parameters, which refers to nothing."""
        schema = query.model_json_schema(mode="validation")
        assert "$defs" not in schema
        return schema
