"""References to secrets, and redaction of their values."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tasks.kind import MissingSecret
from tasks.secret import (
    VALUE_CHARS_MIN,
    NodesOwn,
    Redactor,
    Reference,
    SecretEnv,
    SecretFile,
    lacking,
    mark,
    redact_json,
    references_in,
    resolve,
)


@pytest.mark.parametrize("reference", ["pg", {"secret": "pg"}, SecretFile(secret="pg")])
def test_a_secret_is_read_from_the_secrets_folder(reference: object, tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("hunter2\n")
    assert resolve(reference, tmp_path, (), {}) == "hunter2"


def test_only_the_trailing_newline_is_removed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" a key\nb \n\n")
    assert resolve("key", tmp_path, (), {}) == " a key\nb \n"


@pytest.mark.parametrize("reference", [{"env": "PGPASS"}, SecretEnv(env="PGPASS")])
def test_an_allowed_environment_variable_is_a_secret(reference: object, tmp_path: Path) -> None:
    assert resolve(reference, tmp_path, ("PGPASS",), {"PGPASS": "hunter2"}) == "hunter2"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("absent", "No such file"),
        ({"secret": "../etc/passwd"}, "is not the name of a secret"),
        ({"secret": ".hidden"}, "is not the name of a secret"),
        ({"secret": ""}, "is not the name of a secret"),
        ("folder", "directory"),
        ("large", "larger than"),
        ("binary", "not UTF-8"),
        ({"env": "ROTA_TOKEN"}, "ROTA_*"),
        ({"env": "HOME"}, "not listed in ROTA_ENV_ALLOW"),
        ({"env": "UNSET"}, "is not set"),
        ({"env": "BINARY"}, "not UTF-8"),
        ({"file": "x"}, "a reference to a secret must be"),
        (7, "a reference to a secret must be"),
    ],
)
def test_a_missing_secret_is_named_with_the_reason(reference: object, says: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    allow = ("UNSET", "ROTA_TOKEN", "BINARY")
    environ = {"HOME": "/root", "ROTA_TOKEN": "t0ken", "BINARY": "\udcff"}
    with pytest.raises(MissingSecret, match=says.replace("*", r"\*")):
        resolve(reference, tmp_path, allow, environ)


class Target(BaseModel):
    password: Reference
    others: dict[str, Reference | str] = {}
    labels: dict[str, str] = {}


def test_secret_references_are_found_only_in_secret_fields() -> None:
    params = Target.model_validate(
        {"password": {"secret": "a"}, "others": {"x": {"env": "B"}, "y": "plain"}, "labels": {"env": "prod"}}
    )
    assert list(references_in(params)) == [SecretFile(secret="a"), SecretEnv(env="B")]


def redactor(*values: str) -> Redactor:
    made = Redactor()
    for value in values:
        made.learn(value)
    return made


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab", min_size=VALUE_CHARS_MIN, max_size=8), min_size=1, max_size=3),
    st.lists(st.text("ab" * 8 + "c", max_size=12), max_size=6),
)
def test_values_are_redacted_across_any_chunk_boundaries(values: list[str], pieces: list[str]) -> None:
    redactor_ = redactor(*values)
    shown = b"".join([*(redactor_.feed(piece.encode()) for piece in pieces), redactor_.rest()])
    whole = redactor(*values).redact("".join(pieces).encode())
    assert shown == whole
    assert all(value.encode() not in part for value in values for part in shown.split(b"[secret]"))


def test_text_that_cannot_start_a_value_is_written_at_once() -> None:
    assert redactor("hunter2").feed(b"a line\n") == b"a line\n"


def test_a_value_is_redacted_in_url_and_json_encodings() -> None:
    redactor_ = redactor('p@ss/w"rd')
    for text in ('p@ss/w"rd', "postgres://u:p%40ss%2Fw%22rd@h", '{"a": "p@ss/w\\"rd"}'):
        assert "rd" not in redactor_.redact_text(text)


@pytest.mark.parametrize(
    "shown", ["supersecret-pw9", "SUPERSECRET-PW9", "https://supersecret-pw9.blob.core.windows.net"]
)
def test_a_value_is_redacted_when_lowercased_as_a_host_name(shown: str) -> None:
    assert "pw9" not in redactor("SuperSecret-Pw9").redact_text(shown).lower()


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n  AASCBKcwggSjAgEAAoIBAQC7VJTU\nshort\n-----END KEY-----"


@pytest.mark.parametrize("secret", [KEY, "two  blanks\tand a tab", "a key\r\nb\r\nc"])
def test_a_value_printed_on_one_line_is_redacted(secret: str) -> None:
    assert redactor(secret).redact_text(f"error: {' '.join(secret.split())}!") == "error: [secret]!"


def test_a_multi_line_value_is_redacted_line_by_line_across_any_chunk_boundaries() -> None:
    printed = "".join(f"> {line.strip()}\n" for line in KEY.splitlines()).encode()
    for size in (1, 7, 64, len(printed)):
        redactor_ = redactor(KEY)
        pieces = [redactor_.feed(printed[at : at + size]) for at in range(0, len(printed), size)]
        shown = b"".join([*pieces, redactor_.rest()])
        assert shown == b"> [secret]\n> [secret]\n> [secret]\n> short\n> [secret]\n"


def test_lines_of_a_value_are_redacted_in_json_and_python_escapes() -> None:
    account = '{\n  "private_key_id": "0123456789abcdef",\n  "type": "x"\n}'
    for printed in (r"\"private_key_id\": \"0123456789abcdef\",", '\'"private_key_id": "0123456789abcdef",\''):
        assert "0123456789" not in redactor(account).redact_text(printed)


def test_a_value_of_a_thousand_lines_does_not_slow_the_log() -> None:
    lines = [f"{number:08}{number * 7919 % 1_000_003:08}{'x' * 48}" for number in range(1000)]
    redactor_ = redactor("\n".join(lines))
    began_s = time.process_time()
    shown = b"".join(redactor_.feed(b"00000 nothing of it is here, and it is shown\n") for _ in range(1000))
    assert shown.count(b"nothing") == 1000
    assert redactor_.redact_text(f"> {lines[500]}") == "> [secret]"
    assert time.process_time() - began_s < 3, "it took 10 s when each line was compared with each end of the log"


def test_an_empty_value_redacts_nothing() -> None:
    assert redactor("").redact(b"text") == b"text"


def test_values_in_a_result_are_redacted() -> None:
    assert redact_json({"url": "u:hunter2@h", "n": [1, "hunter2", None]}, redactor("hunter2")) == {
        "url": "u:[secret]@h",
        "n": [1, "[secret]", None],
    }


@pytest.fixture
def own(tmp_path: Path) -> NodesOwn:
    """A node whose secret lies in the folder of the tasks' secrets, as in a compose installation of before."""
    (tmp_path / "rota_secret").write_text("the-members-secret\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "node.json").write_text("kept")
    return NodesOwn(
        (str(tmp_path / "rota_secret"),),
        str(tmp_path / "data"),
        b"key",
        (mark("the-members-secret", b"key"), mark("the-clients-token", b"key")),
    )


@pytest.mark.parametrize("made", ["itself", "symlink", "hard link", "copy", "copy among others", "of the data folder"])
def test_the_nodes_own_secret_is_refused_under_any_name(tmp_path: Path, own: NodesOwn, made: str) -> None:
    match made:
        case "symlink":
            (tmp_path / "pg").symlink_to("rota_secret")
        case "hard link":
            (tmp_path / "pg").hardlink_to(tmp_path / "rota_secret")
        case "copy":
            (tmp_path / "pg").write_text("the-clients-token")
        case "copy among others":
            (tmp_path / "pg").write_text("a\n the-members-secret \nb")
        case "of the data folder":
            (tmp_path / "pg").symlink_to("data/node.json")
    for name in ("rota_secret",) if made == "itself" else ("pg",):
        with pytest.raises(MissingSecret, match="is the node's own") as refused:
            resolve({"secret": name}, tmp_path, (), {}, own)
        assert "the-members" not in str(refused.value)


def test_a_variable_that_holds_the_nodes_secret_is_refused(tmp_path: Path, own: NodesOwn) -> None:
    with pytest.raises(MissingSecret, match="is the node's own"):
        resolve({"env": "COPY"}, tmp_path, ("COPY",), {"COPY": "the-clients-token"}, own)
    assert resolve({"env": "OTHER"}, tmp_path, ("OTHER",), {"OTHER": "another"}, own) == "another"


def test_secrets_that_are_links_in_the_data_folder_are_found(tmp_path: Path, own: NodesOwn) -> None:
    """As Kubernetes makes them: each a link to a file in a folder that is itself a link."""
    folder = tmp_path / "data" / "secrets"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..data").symlink_to("..2026")
    (folder / "..2026" / "pg").write_text("hunter2\n")
    (folder / "pg").symlink_to("..data/pg")
    assert resolve({"secret": "pg"}, folder, (), {}, own) == "hunter2"


def test_a_named_pipe_is_refused_as_a_secret_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MissingSecret, match="is empty"):
        resolve({"secret": "pipe"}, tmp_path, (), {})


@pytest.mark.parametrize(
    "value", ["", "\n", "   ", "a", "hunt2", " ab\n", "a\n\n\n\n\nb", "x     ", "ä\u2003\u2003\u2003\u2003b"]
)
def test_a_value_of_fewer_than_six_characters_is_no_secret(value: str, tmp_path: Path) -> None:
    (tmp_path / "short").write_text(value)
    for reference in ({"secret": "short"}, {"env": "SHORT"}):
        with pytest.raises(MissingSecret, match=r"fewer than 6 characters|is empty") as refused:
            resolve(reference, tmp_path, ("SHORT",), {"SHORT": value})
        assert value != "hunt2" or value not in str(refused.value)
    assert redactor(value).redact_text("PostgresFailed: a x ab b hunt2") == "PostgresFailed: a x ab b hunt2"
    assert "SHORT" in (lacking(SecretEnv(env="SHORT"), tmp_path, ("SHORT",), {"SHORT": value}) or "")


def test_six_characters_are_a_secret(tmp_path: Path) -> None:
    assert resolve({"env": "PIN"}, tmp_path, ("PIN",), {"PIN": "123456"}) == "123456"
    assert redactor("123456").redact_text("refused: 123456") == "refused: [secret]"


def test_what_is_lacking_is_told_without_reading_a_file(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("hunter2")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    own = NodesOwn(files=(str(tmp_path / "node"),))
    (tmp_path / "node").write_text("the node's own")

    def why(reference: SecretFile | SecretEnv) -> str | None:
        return lacking(reference, tmp_path, ("PGPASS", "UNSET"), {"PGPASS": "hunter2"}, own)

    assert (why(SecretFile(secret="pg")), why(SecretEnv(env="PGPASS"))) == (None, None)
    assert "No such file" in (why(SecretFile(secret="absent")) or "")
    assert "larger than" in (why(SecretFile(secret="large")) or "")
    (tmp_path / "short").write_text("hunt2")
    (tmp_path / "empty").write_text("")
    assert "fewer than 6" in (why(SecretFile(secret="short")) or "")
    assert "is empty" in (why(SecretFile(secret="empty")) or "")
    assert "never handed to a task" in (why(SecretFile(secret="node")) or "")
    assert "is not set" in (why(SecretEnv(env="UNSET")) or "")
    assert "not listed" in (why(SecretEnv(env="OTHER")) or "")
