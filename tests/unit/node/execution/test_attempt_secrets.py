"""What a supervisor answers a worker that asks for a secret, and what of it a worker is given."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.execution import attempt_secrets
from node.execution.attempt_secrets import NO_SECRETS, AttemptSecrets, SecretAnswers
from node.execution.frames import BadFrame, SecretAskFrame, SecretFrame
from node.execution.order import AttemptLimits, Brief, Order, unpack_brief
from node.execution.preparation import brief_files, read_brief
from tasks.errors import MissingSecret
from tasks.secret import NodesOwn, Reference, SecretEnv, SecretFile

OWN = NodesOwn(("/s",), "/d", b"k", (b"m",))
ALL = AttemptSecrets(
    (SecretFile(secret="pg"), SecretEnv(env="A")),
    "/vault",
    ("A", "B"),
    {"A": "value-a"},
    NodesOwn(("/s",), "/d", b"k", (b"m",)),
)
ASK = SecretAskFrame("secret", "pg")


def answers(
    secrets: AttemptSecrets, learn: Callable[[str], None] = lambda _: None
) -> tuple[SecretAnswers, threading.Event]:
    woken = threading.Event()
    return SecretAnswers(secrets, learn, woken.set), woken


def test_a_brief_arrives_whole_at_the_supervisor_and_without_secrets_at_the_worker() -> None:
    order = Order("r~1", "r", "k", "m:K", {"p": {"secret": "pg"}}, 1, 2, 3, None, None, 4.0, ALL, {"E": "1"}, "node-1")
    brief = Brief(order, AttemptLimits(), "/data")
    shared, secrets = brief.pack(), ALL.pack()
    assert unpack_brief(shared, secrets) == brief
    given = unpack_brief(shared)
    assert given == replace(brief, order=replace(order, secrets=NO_SECRETS))
    assert (b"vault" in secrets, b"vault" in shared, b"value-a" in shared) == (True, False, False)
    assert NO_SECRETS.pack() == b""


def test_a_brief_without_secrets_is_one_file_and_one_with_them_two() -> None:
    order = Order("r~1", "r", "k", "m:K", {}, 1, 2, 3, None, None, 4.0)
    for secrets, count in ((NO_SECRETS, 1), (ALL, 2)):
        brief = Brief(replace(order, secrets=secrets), AttemptLimits(), "/data")
        files = brief_files(brief)
        try:
            assert len(files) == count
            assert read_brief(*files) == brief
            shared = read_brief(files[0])
            assert isinstance(shared, Brief)
            assert shared.order.secrets == NO_SECRETS
        finally:
            for descriptor in files:
                os.close(descriptor)


def test_references_that_the_params_do_not_name_are_refused_whatever_is_there(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("value-1")
    (tmp_path / "other").write_text("value-2")
    secrets = AttemptSecrets((SecretFile(secret="pg"),), str(tmp_path), ("A",), {"A": "value-a"})
    assert secrets.value(SecretFile(secret="pg")) == "value-1"
    unnamed: list[Reference] = [SecretFile(secret="other"), SecretEnv(env="A"), SecretFile(secret="A")]
    for reference in unnamed:
        with pytest.raises(MissingSecret, match="is not named in the task's params"):
            secrets.value(reference)


def test_the_log_learns_a_value_before_the_worker_has_it(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("hunter2")
    learnt: list[tuple[str, bool]] = []
    asked, woken = answers(
        AttemptSecrets((SecretFile(secret="pg"),), str(tmp_path)), lambda value: learnt.append((value, woken.is_set()))
    )
    assert asked.take() is None
    asked.ask(ASK)
    assert woken.wait(10)
    assert (asked.take(), learnt) == (SecretFrame("hunter2", ""), [("hunter2", False)])
    assert asked.take() is None, "each answer once"
    asked.ask(ASK)
    wait_for("the second answer", asked.take)


def test_a_folder_that_does_not_answer_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def resolve(*_: object) -> str:
        hangs.wait(10)
        raise MissingSecret("gone")

    monkeypatch.setattr(attempt_secrets, "resolve", resolve)
    asked, woken = answers(ALL)
    asked.ask(ASK)
    assert asked.take() is None
    with pytest.raises(BadFrame, match="a second request"):
        asked.ask(ASK)
    hangs.set()
    assert woken.wait(10)
    assert asked.take() == SecretFrame(None, "gone")


def test_an_error_that_nobody_expects_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> str:
        raise RuntimeError("a defect, with hunter2 in it")

    monkeypatch.setattr(attempt_secrets, "resolve", resolve)
    asked, woken = answers(ALL)
    asked.ask(ASK)
    assert woken.wait(10)
    assert asked.take() == SecretFrame(None, "secret 'pg' cannot be looked up: the node's log says why")


@pytest.mark.parametrize("words", [("file", "pg"), ("secret", "../pg"), ("env", "A=B"), ("", ""), ("secret", "a\0b")])
def test_what_is_no_reference_is_no_frame(words: tuple[str, str]) -> None:
    asked, _ = answers(ALL)
    with pytest.raises(BadFrame):
        asked.ask(SecretAskFrame(*words))
    asked.ask(ASK)
