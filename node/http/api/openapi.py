"""/openapi.json, OpenAPI 3.1: generated from the endpoints and from the models that validate requests."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from node.http.door.endpoint import Endpoint, ResponseSpec
from node.http.door.header_checks import JSON
from node.http.door.problems import CATALOGUE, MEDIA_TYPE, TYPE_PREFIX, ProblemDocument
from tasks.version import version

_REF: Final = "#/components/schemas/{model}"
_ALWAYS: Final = ("bad-request", "misdirected", "invalid", "internal", "behind", "not-ready", "media-type")
_WITH_TOKEN: Final = ("unauthorized", "wrong-tokens")
_OF_CLIENTS: Final = ("foreign-page",)
_OF_WRITES: Final = ("read-only",)
_OF_MEMBERS: Final = ("other-cluster", "request-timeout", "too-large")
_WITH_BODY: Final = ("request-timeout", "too-large")
_READS: Final = ("no-quorum",)
_ABOUT: Final = """A cluster of equal members that runs tasks. Any member answers any request.

Every response has the headers `Rota-Index` (the last index applied at that member) and `Rota-Epoch`. A request with
`Rota-Index: n` waits until n is applied, so that a client reads its own writes. Errors are problem documents
(RFC 9457)."""
_HEADERS: Final[dict[str, Any]] = {
    "Rota-Index": {"description": "The last index applied at this member", "schema": {"type": "integer"}},
    "Rota-Epoch": {"description": "Incremented by every change that affects placement", "schema": {"type": "integer"}},
}


@lru_cache(maxsize=4)
def openapi_document(endpoints: tuple[Endpoint, ...], *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI document of these endpoints. `secured`: clients need a token."""
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas, secured=secured)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": version(), "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "./"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.definitions.items())),
            "headers": _HEADERS,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "ROTA_TOKEN; to read, also ROTA_READ_TOKEN",
                },
                "page": {"type": "http", "scheme": "basic", "description": "ROTA_TOKEN as the password, for a browser"},
                "member": {
                    "type": "http",
                    "scheme": "Rota",
                    "description": "Signed with a key derived from ROTA_SECRET",
                },
            },
        },
    }


def problems_of(endpoint: Endpoint, *, secured: bool) -> list[str]:
    """Return the problem types with which an endpoint may answer, its own first. `secured`: clients need a token."""
    kinds = [*endpoint.problems, *_ALWAYS]
    if endpoint.access == "member" or (secured and endpoint.access != "anyone"):
        kinds += _WITH_TOKEN
    if endpoint.access == "member":
        kinds += _OF_MEMBERS
    if endpoint.access != "anyone":
        kinds += _OF_CLIENTS
    if secured and endpoint.access in ("client", "page") and endpoint.method != "GET":
        kinds += _OF_WRITES
    if endpoint.body is not None:
        kinds += _WITH_BODY
    if endpoint.reads:
        kinds += _READS
    return list(dict.fromkeys(kinds))


def _operation(endpoint: Endpoint, schemas: "_Schemas", *, secured: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
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
"""Examples of path parameters. A task's name is that in the spec's example, because path and body must agree."""


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
            of_value = {key: value for key, value in of.items() if key not in ("title", "description")}
            parameter = {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                "schema": of_value,
            }
            if "description" in of:
                parameter["description"] = of["description"]
            parameters.append(parameter)
    if endpoint.reads:
        about = "Wait for a commit first, so that the response is not stale (a linearizable read)"
        parameters.append({"name": "consistent", "in": "query", "description": about, "schema": {"type": "boolean"}})
    for name, about in endpoint.headers.items():
        parameters.append({"name": name, "in": "header", "description": about, "schema": {"type": "string"}})
    about = "Wait until this index is applied at this member"
    parameters.append({"name": "Rota-Index", "in": "header", "description": about, "schema": {"type": "integer"}})
    return parameters


def _responses(endpoint: Endpoint, schemas: "_Schemas", *, secured: bool) -> dict[str, Any]:
    described = {str(status): _response(spec, schemas) for status, spec in sorted(endpoint.responses.items())}
    by_status: dict[int, list[str]] = {}
    for kind in problems_of(endpoint, secured=secured):
        by_status.setdefault(CATALOGUE[kind][0], []).append(kind)
    for status, of_status in sorted(by_status.items()):
        described[str(status)] = {
            "description": "; ".join(f"{CATALOGUE[kind][1]} (`{TYPE_PREFIX}{kind}`)" for kind in of_status),
            "headers": _header_refs(),
            "content": {MEDIA_TYPE: {"schema": schemas.of(ProblemDocument, "serialization")}},
        }
    return described


def _response(spec: ResponseSpec, schemas: "_Schemas") -> dict[str, Any]:
    response: dict[str, Any] = {"description": spec.meaning, "headers": _header_refs()}
    if spec.body is bytes:
        response["content"] = {spec.media_type: {}}
    elif spec.body is not None:
        response["content"] = {spec.media_type: {"schema": schemas.of(spec.body, "serialization")}}
    return response


def _header_refs() -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}


class _Schemas:
    """The schemas of all bodies, with common definitions."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        wanted: dict[tuple[int, JsonSchemaMode], Any] = {}
        for endpoint in endpoints:
            if endpoint.body is not None:
                wanted[id(endpoint.body), "validation"] = endpoint.body
            for spec in endpoint.responses.values():
                if spec.body not in (None, bytes):
                    wanted[id(spec.body), "serialization"] = spec.body
        wanted[id(ProblemDocument), "serialization"] = ProblemDocument
        adapters = [(key, mode, TypeAdapter(of)) for (key, mode), of in wanted.items()]
        self._found, rest = TypeAdapter.json_schemas(adapters, ref_template=_REF)
        self.definitions: dict[str, Any] = {name: _plain(of) for name, of in rest.get("$defs", {}).items()}

    def of(self, body: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """Return the schema of a body: mostly a reference to a definition."""
        return self._found[id(body), mode]

    def inline(self, query: type[BaseModel]) -> dict[str, Any]:
        """Return the schema of a query's parameters, which uses no definitions."""
        schema = query.model_json_schema(mode="validation")
        assert "$defs" not in schema
        return schema


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a model's schema with each "object or null" field whose default is `{}` as an object. Null still passes.

    openapi-python-client cannot handle such a field, and leaves out every endpoint that takes one.
    """
    fields = schema.get("properties", {})
    return {**schema, "properties": {name: _without_null(of) for name, of in fields.items()}} if fields else schema


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    others = [one for one in field.get("anyOf", ()) if one != {"type": "null"}]
    if len(others) != 1 or not isinstance(field.get("default"), dict):
        return field
    return {**others[0], **{name: value for name, value in field.items() if name != "anyOf"}}
