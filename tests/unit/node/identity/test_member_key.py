"""One derivation of keys from the members' secret, for every door."""

import ast
from pathlib import Path

from node.identity.member_key import KEY_BYTES, member_key
from node.peer.signing import signing_key

NODE = Path(__file__).parents[4] / "node"
DERIVES = NODE / "identity" / "member_key.py"


def test_no_other_module_turns_the_members_secret_into_bytes() -> None:
    """Whoever makes a key of the secret itself gives an eavesdropper guesses at microseconds each."""
    found = [
        f"{file.relative_to(NODE)}:{call.lineno}"
        for file in sorted(NODE.rglob("*.py"))
        if file != DERIVES
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "encode"
        and _last_name(call.func.value) == "secret"
    ]
    assert found == []


def test_a_key_is_derived_once_for_each_secret_and_purpose() -> None:
    before = member_key.cache_info()
    first = member_key("asked for twice", "a test")
    assert member_key("asked for twice", "a test") is first
    assert len(first) == KEY_BYTES
    assert member_key.cache_info().misses == before.misses + 1
    assert member_key("asked for twice", "another test") != first != signing_key("asked for twice")


def _last_name(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
