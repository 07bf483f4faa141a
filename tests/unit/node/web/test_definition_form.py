"""The form for a definition: texts that are no definition, errors with their lines, and changes by field."""

import pytest

from node.web.definition_form import CHARS_MAX, NEW, digest_of, lined, read_definition, shown_changes
from node.web.views.task import definition_text
from tasks.definition.field_errors import FieldError
from tasks.definition.spec import Spec
from tasks.definition.yaml_text import YamlUnreadable

TEXT = """\
name: a
kind: copy
params:
  argv:
  - x
  - 5
retry: {attempts: none}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be one definition"),
        ("- a\n", "must be one definition"),
        ("a: 1\n---\nb: 2\n", "must be one definition"),
        ("a: [", "cannot be read as YAML"),
        ("a: !!python/object:os.system x", "cannot be read as YAML"),
        ("a: &x [*x]", "cannot be read as YAML"),
        ("a" * (CHARS_MAX + 1), "is longer than"),
    ],
)
def test_what_is_no_definition_is_told(text: str, said: str) -> None:
    with pytest.raises(YamlUnreadable, match=said):
        read_definition(text)


def test_errors_name_their_lines() -> None:
    fields = ("name", "params.argv[1]", "retry.attempts", "params.other", "schedule", "")
    found = lined(TEXT, [FieldError(field, "is wrong") for field in fields])
    assert {error.field: error.line for error in found} == dict(zip(fields, (1, 6, 7, 3, 1, 1), strict=True))
    assert [error.line for error in found] == [1, 1, 1, 3, 6, 7]
    assert [error.line for error in lined("- x\n", [FieldError("name", "is wrong")])] == [None]


def test_changes_are_by_field_and_those_of_a_new_task_are_what_it_sets() -> None:
    before = Spec.model_validate({"name": "a", "kind": "copy", "params": {"n": 1, "argv": ["x"]}})
    after = Spec.model_validate({"name": "a", "kind": "copy", "params": {"n": 2, "argv": ["x", "y"]}, "weight": 3})
    assert {field: (old, new) for field, old, new in shown_changes(before, after)} == {
        "params.n": ("1", "2"),
        "params.argv": ("- x", "- x\n- y"),
        "weight": ("1", "3"),
    }
    assert shown_changes(before, before) == ()
    assert [field for field, _, _ in shown_changes(None, after)] == ["name", "kind", "params", "weight"]


def test_the_last_line_of_a_script_ends_though_the_text_does_not() -> None:
    assert read_definition("params:\n  script: |\n    one\n    two")["params"] == {"script": "one\ntwo\n"}
    for script in ("one", "one\n", "one\n\n", "one\ntwo\n\n\n"):
        spec = Spec.model_validate({"name": "a", "kind": "copy", "params": {"script": script}})
        assert read_definition(definition_text(spec.pack()))["params"] == {"script": script}


@pytest.mark.parametrize(
    "given",
    [
        {"schedule": {"every_s": 60}, "params": {"x": 2.0, "y": 1e300}, "weight": 2, "retry": {"attempts": 5}},
        {"schedule": {"continuous": True}},
        {"schedule": {"continuous": True}, "sticky": False},
        {"params": {"text": "a: b # c\n\ttab é\x85", "none": None, "yes": "yes"}},
    ],
)
def test_a_definition_survives_being_shown_and_saved(given: dict[str, object]) -> None:
    spec = Spec.model_validate({"name": "a", "kind": "copy", **given})
    assert Spec.model_validate(read_definition(definition_text(spec.pack()))) == spec


def test_what_a_new_task_begins_with_is_valid_and_line_ends_do_not_matter() -> None:
    assert Spec.model_validate(read_definition(NEW)).kind == "command"
    assert digest_of("a\r\nb") == digest_of("a\nb") != digest_of("a\nc")
