"""Checks that real responses are as /openapi.json describes them."""

import re
from typing import Any

from jsonschema import Draft202012Validator


class NotAsDescribed(AssertionError):
    """A response that differs from its description."""


class Description:
    """An OpenAPI document, with which responses are compared."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._paths = {
            re.compile("^" + re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + "$"): item
            for path, item in sorted(document["paths"].items(), key=lambda path: path[0].count("{"))
        }
        self._validators: dict[int, Draft202012Validator] = {}

    def check(self, method: str, path: str, status: int, media_type: str, body: Any) -> None:
        """Raises `NotAsDescribed` for a response that differs. `body` is that of a JSON response, parsed; else None."""
        what = f"{method} {path} -> {status} {media_type}"
        operation = next((item.get(method.lower()) for form, item in self._paths.items() if form.match(path)), None)
        if operation is None:
            if status in (404, 405, 421):
                return
            raise NotAsDescribed(f"{what}: no such operation")
        answer = operation["responses"].get(str(status))
        if answer is None:
            raise NotAsDescribed(f"{what}: only {sorted(operation['responses'])} are described")
        content = answer.get("content")
        if not content:
            if body is not None:
                raise NotAsDescribed(f"{what}: no body is described, and there is {body!r}")
            return
        if media_type not in content:
            raise NotAsDescribed(f"{what}: only {sorted(content)} are described")
        if "schema" in content[media_type] and media_type.endswith("json"):
            self._check_body(what, content[media_type]["schema"], body)

    def _check_body(self, what: str, schema: dict[str, Any], body: Any) -> None:
        validator = self._validators.get(id(schema))
        if validator is None:
            whole = {**schema, "components": self.document["components"]}
            validator = self._validators[id(schema)] = Draft202012Validator(whole)
        for error in validator.iter_errors(body):
            raise NotAsDescribed(f"{what}: {error.json_path}: {error.message[:500]}")
