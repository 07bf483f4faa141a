"""docs/reference/http.md, from the endpoints, models and problem types: the source of /openapi.json."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from node.http.api.openapi import openapi_document, problems_of
from node.http.app import ENDPOINTS
from node.http.door.endpoint import Access, Endpoint
from node.http.door.problems import CATALOGUE, MEDIA_TYPE, TYPE_PREFIX
from testkit.reference.markdown import MADE_BY, code, table

PATH: Final = "docs/reference/http.md"

_METHODS: Final = ("get", "put", "post", "patch", "delete")

_ACCESS: Final[Mapping[Access, str]] = {
    "client": "token",
    "page": "token, also as a browser's password",
    "member": "signature of a member",
    "anyone": "none",
    "browser": "session of a browser",
    "visitor": "none",
}

_COMMON: Final = ("Rota-Index", "consistent")
"""Parameters of all endpoints, explained in the conventions."""

_CONVENTIONS: Final = """## Conventions

- **Authentication.** `Authorization: Bearer TOKEN`, if the node has `ROTA_TOKEN`. With `ROTA_READ_TOKEN` a client
  may send `GET` only, as may a browser that has signed in on the page at `/`. Requests between members are signed.
- **Lists** have `items` and `next`. Send `next` as `after` to get the next page; it is null on the last page.
- **Times** in responses are RFC 3339 in UTC. Fields that end in `_s` are seconds, in `_us` microseconds.
- **Read your writes.** Every response has `Rota-Index`, the last index applied at that member. A request with
  `Rota-Index: n` waits until n is applied, up to 5 s, and is answered with `behind` otherwise.
- **Linearizable reads.** `?consistent=true` on a `GET` below `/v1` waits for a commit first; without it a member
  answers from its own state, which may be stale.
- **HEAD** is supported wherever `GET` is, except for streams.
- **Errors** are problem documents (RFC 9457) with the media type `application/problem+json`; see [Problems](#problems).
- **Events** of `GET /v1/events` are Server-Sent Events: `member`, `owner`, `run`, `deadline` and `reset`.
"""


def render() -> str:
    """The page."""
    document = openapi_document(ENDPOINTS, secured=True)
    endpoints = {(endpoint.method.lower(), endpoint.path): endpoint for endpoint in ENDPOINTS}
    problems = {endpoint: problems_of(endpoint, secured=True) for endpoint in ENDPOINTS}
    common = [kind for kind in CATALOGUE if all(kind in kinds for kinds in problems.values())]
    parts = [
        f"{MADE_BY}\n# HTTP API\n\n{document['info']['description']}\n\n",
        "A node serves the same as `/openapi.json`, and as a page at `/docs`.\n\n",
        _CONVENTIONS,
        "\n## Endpoints\n\n",
        _summary(document),
        *(
            f"\n{_endpoint(endpoint, operation)}\nProblems: {_kinds(problems[endpoint], common)}.\n"
            for path, method, operation in _operations(document)
            for endpoint in [endpoints[method, path]]
        ),
        "\n## Problems\n\n",
        _problems(common),
        "\n## Models\n",
        *(f"\n{_model(name, schema)}" for name, schema in document["components"]["schemas"].items()),
    ]
    return "".join(parts)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def _summary(document: Mapping[str, Any]) -> str:
    rows = (
        (
            operation["tags"][0],
            f"[{code(_title(method, path))}](#{_anchor(_title(method, path))})",
            operation["summary"],
        )
        for path, method, operation in _operations(document)
    )
    return table(("topic", "endpoint", "what it does"), rows)


def _endpoint(endpoint: Endpoint, operation: dict[str, Any]) -> str:
    parts = [f"### {_title(endpoint.method, endpoint.path)}\n\n{operation['summary']}.\n"]
    if "description" in operation:
        parts.append(f"\n{operation['description']}\n")
    parts.append(f"\nAuthentication: {_ACCESS[endpoint.access]}.\n")
    if parameters := [one for one in operation["parameters"] if one["in"] != "path" and one["name"] not in _COMMON]:
        rows = (
            (
                code(one["name"]),
                one["in"],
                _type(one["schema"]),
                "yes" if one.get("required") else "",
                _with_default(one.get("description", ""), one["schema"]),
            )
            for one in parameters
        )
        parts.append("\n" + table(("parameter", "in", "type", "required", "meaning"), rows))
    if body := operation.get("requestBody"):
        (content,) = body["content"].values()
        optional = "" if body["required"] else " (optional)"
        parts.append(f"\nBody{optional}: {_type(content['schema'])}.\n")
    parts.append("\n" + table(("status", "meaning", "body"), _successes(operation["responses"])))
    return "".join(parts)


def _kinds(kinds: Iterable[str], common: Iterable[str]) -> str:
    own = [code(kind) for kind in kinds if kind not in common]
    return ", ".join([*own, "[those of every endpoint](#problems)"])


def _successes(responses: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, response in responses.items():
        if MEDIA_TYPE not in response.get("content", {}):
            bodies = [_body(media_type, content) for media_type, content in response.get("content", {}).items()]
            yield status, response["description"], ", ".join(bodies)


def _body(media_type: str, content: Mapping[str, Any]) -> str:
    return _type(content["schema"]) if media_type == "application/json" else code(media_type)


def _problems(common: Iterable[str]) -> str:
    about = (
        f"`type` is `{TYPE_PREFIX}` and the name below. `detail` says what is wrong and what to do. `errors` lists the "
        "`field` and `message` of each invalid field. A 503 has `Retry-After`.\n\n"
        f"Every endpoint may answer with {', '.join(map(code, common))}.\n\n"
    )
    rows = ((str(status), code(kind), title) for kind, (status, title) in CATALOGUE.items())
    return about + table(("status", "type", "title"), rows)


def _model(name: str, schema: Mapping[str, Any]) -> str:
    parts = [f"### {name}\n"]
    if "description" in schema:
        parts.append(f"\n{schema['description']}\n")
    required = schema.get("required", ())
    rows = [
        (code(field), _type(of), "yes" if field in required else "", _with_default(of.get("description", ""), of))
        for field, of in schema.get("properties", {}).items()
    ]
    if rows:
        parts.append("\n" + table(("field", "type", "required", "meaning"), rows))
    elif "description" not in schema:
        parts.append(f"\n{_type(schema)}\n")
    return "".join(parts)


def _type(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return f"list of [{', '.join(map(_type, schema['prefixItems']))}]"
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"object of {_type(values)}"
    if kind is None:
        return "any JSON value"
    return " ".join([schema.get("format", kind), *_bounds(schema)])


_BOUNDS: Final = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "of {} characters or more",
    "maxLength": "of {} characters at most",
    "pattern": "matching `{}`",
}


def _bounds(schema: Mapping[str, Any]) -> Iterable[str]:
    return (text.format(schema[bound]) for bound, text in _BOUNDS.items() if bound in schema)


def _with_default(description: str, schema: Mapping[str, Any]) -> str:
    if schema.get("default") is None:
        return description
    default = f"default {code(json.dumps(schema['default']))}"
    return f"{description}; {default}" if description else default


def _title(method: str, path: str) -> str:
    return f"{method.upper()} {path}"


def _anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return "".join(one for one in title.lower().replace(" ", "-") if one.isalnum() or one in "-_")
