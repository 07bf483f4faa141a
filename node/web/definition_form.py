"""The content of the form for a task's definition: its errors, field by field, or what saving would change. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tasks.definition.field_errors import FieldError
from tasks.definition.spec import Spec
from tasks.definition.spec_diff import FieldChange, changes
from tasks.definition.yaml_text import YamlUnreadable, as_yaml, documents, line_of

CHARS_MAX: Final = 200_000
"""The longest definition that the form accepts; `rota apply` accepts longer ones."""

NEW: Final = """\
name: my-task
kind: command
params:
  argv: [echo, hello]
schedule:
  cron: "30 2 * * *"
  timezone: Europe/Paris
"""


@dataclass(frozen=True, slots=True)
class LinedError:
    """An error in a field, and the line where the field is or should be; None: no line is at fault."""

    field: str
    message: str
    line: int | None


@dataclass(frozen=True, slots=True)
class DefinitionForm:
    """The content of the form when it is shown."""

    #: The text of the definition.
    text: str
    #: The registered version that the text is compared with; 0: none.
    version: int
    #: The errors in the text.
    errors: tuple[LinedError, ...] = ()
    #: The changes that saving would make: fields with their values before and after; None: not known.
    changes: tuple[tuple[str, str, str], ...] | None = None
    #: Warnings that the user should read before saving.
    warnings: tuple[str, ...] = ()
    #: The digest of the text if it has no errors and its `changes` are shown: then it may be saved. "": it may not.
    checked: str = ""
    #: The version that the user began to edit, if another one is registered now; None: it is still the same.
    meanwhile: int | None = None
    #: Why a text that was sent was neither checked nor saved; "": it was checked or saved, or was not sent.
    unsaved: str = ""


def form_sent(fields: Mapping[str, str]) -> DefinitionForm:
    """Return the form that a browser has sent, not checked yet.

    >>> form_sent({"definition": "kind: command", "version": "3"}).version
    3
    """
    return DefinitionForm(fields.get("definition", "").replace("\r\n", "\n"), version_sent(fields))


def version_sent(fields: Mapping[str, str]) -> int:
    """Return the version of the task from which a form was made; 0: a new task, or the field is missing."""
    began = fields.get("version", "")
    return int(began) if began.isascii() and began.isdigit() and len(began) < 18 else 0


def read_definition(text: str) -> dict[str, Any]:
    """Return the one definition in a text. Raises `YamlUnreadable`."""
    if len(text) > CHARS_MAX:
        raise YamlUnreadable(f"is longer than {CHARS_MAX:,} characters: use `rota apply`")
    # End the last line, because a block of text (a script) there would otherwise lack its line end.
    found = documents(text if text.endswith("\n") else f"{text}\n")
    if len(found) != 1 or not isinstance(found[0], dict):
        raise YamlUnreadable("must be one definition: fields and their values, such as `kind: command`")
    return found[0]


def digest_of(text: str) -> str:
    """Return the digest of a text: the same for LF and the CRLF that browsers send."""
    return hashlib.sha256(text.replace("\r\n", "\n").encode(errors="replace")).hexdigest()


def lined(text: str, errors: Sequence[FieldError]) -> tuple[LinedError, ...]:
    """Return the errors, each with its line, in the order of the lines."""
    found = (LinedError(error.field, error.message, line_of(text, error.field)) for error in errors)
    return tuple(sorted(found, key=lambda error: error.line or 0))


def shown_changes(before: Spec | None, after: Spec) -> tuple[tuple[str, str, str], ...]:
    """Return the fields that differ, with their values before and after as YAML; for a new task, the fields it sets."""
    now = after.model_dump(mode="json")
    if before is None:
        found = [FieldChange(name, None, value) for name, value in _set_by(after).items()]
    else:
        found = changes(before.model_dump(mode="json"), now)
    return tuple((one.field, _value(one.before), _value(one.after)) for one in found)


def _set_by(spec: Spec) -> Mapping[str, Any]:
    return spec.model_dump(mode="json", exclude_defaults=True)


def _value(value: Any) -> str:
    if value is None:
        return ""
    return as_yaml(value).removesuffix("...\n").strip()
