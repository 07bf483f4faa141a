"""Definitions of tasks as people write them: what is read, and what is refused because it most likely is a mistake."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.definition.yaml_text import DEPTH_MAX, YamlUnreadable, as_yaml, documents, line_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\n \t#-:|>'"), max_size=8)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nparams: {x: 1}\nparams: {x: 2}\n", "has the key 'params' twice, in lines 2 and 3"),
        ("a: {b: 1, b: 1}", "has the key 'b' twice"),
        ('{"name": "a", "name": "b"}', "has the key 'name' twice in one object"),
        ("{010: x}", r"has the key 010 in line 1, which YAML does not read as text \(int\): put it"),
        ("{on: 1, 'on': 2}", "has the key 'on' twice"),
        ("a: .inf", "has the number inf"),
        ("a: [.nan]", "has the number nan"),
        ('{"a": 1e999}', "has the number inf"),
    ],
)
def test_what_is_most_likely_a_mistake_is_refused(text: str, said: str) -> None:
    with pytest.raises(YamlUnreadable, match=said):
        documents(text)


def test_a_key_that_yaml_takes_for_a_boolean_is_text() -> None:
    assert documents("after: [{task: a, on: failed}]\nNo: {y: yes}\n") == [
        {"after": [{"task": "a", "on": "failed"}], "No": {"y": True}}
    ]


def test_merged_keys_may_be_given_anew() -> None:
    text = "- &d {a: 1, c: 3}\n- &e {<<: *d, a: 2}\n- {<<: [*e, *d], c: 4}\n- *d\n---\n{a: 1}\n"
    assert documents(text) == [
        [{"a": 1, "c": 3}, {"a": 2, "c": 3}, {"a": 2, "c": 4}, {"a": 1, "c": 3}],
        {"a": 1},
    ]


def test_a_deeply_nested_text_is_refused() -> None:
    """In a process of its own: libyaml overflows its stack, and a node reads what is typed into its page."""
    code = """
from tasks.definition.yaml_text import YamlUnreadable, documents, line_of
for opened in ("[", "{a: ", "- ", '{"a":'):
    text = opened * 150_000
    assert line_of(text, "a") is None
    try:
        documents(text)
    except YamlUnreadable as refused:
        print(refused)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["is nested more than 200 levels deep in line 1"] * 4, ended.returncode


def test_what_is_nested_less_deeply_is_read() -> None:
    text = "[" * DEPTH_MAX + "]" * DEPTH_MAX + "\n# YAML\n"
    assert len(documents(text)) == 1
    assert line_of("a: " + text, "a") is None


@given(st.dictionaries(TEXT, st.none() | st.booleans() | NUMBERS | TEXT | st.lists(TEXT, max_size=2), max_size=3))
@example({"\x85": "a\u2028b"})  # were read as spaces
@example({"a": " b\n c\n", "d": ["\n\n", "e \nf", "g\n\n", "\th\n"], "i": "j\r\nk\n"})
@example({"on": "2026-01-01", "<<": "=", "1e3": "~", "010": 1e20})
def test_what_is_written_is_read_as_it_was(value: dict[str, object]) -> None:
    assert repr(documents(as_yaml(value))) == repr([value])
