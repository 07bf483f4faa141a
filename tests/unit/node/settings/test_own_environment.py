"""What of an environment is the node's own, and how it is handed over."""

import os
from collections.abc import Iterator

import pytest

from node.settings.own_environment import (
    EVERY_PROGRAMS,
    HANDED,
    SECRETS,
    NotHandedOver,
    handed_over,
    memory_file,
    parted,
)
from node.settings.table import FILE_NAMES, SETTINGS
from node.settings.values import parse_env_allow


@pytest.fixture
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(HANDED, "")
    yield
    os.environ[HANDED] = ""


def test_every_setting_that_may_come_from_a_file_is_a_secret_and_no_other() -> None:
    assert {row.name for row in FILE_NAMES.values()} == set(SECRETS)
    assert HANDED not in SETTINGS


@pytest.mark.parametrize("name", sorted(EVERY_PROGRAMS))
def test_variables_that_every_program_needs_are_no_secrets(name: str) -> None:
    with pytest.raises(ValueError, match=f"programs are found by {name}"):
        parse_env_allow(f"KEY,{name}")
    assert parted({"ROTA_ENV_ALLOW": f"KEY,{name}", name: "x"})[1] == {}


def test_an_environment_is_parted_as_the_settings_read_it() -> None:
    given = {
        "ROTA_ENV_ALLOW": " KEY ,,ROTA_TOKEN_FILE, rota_X,OTHER ",
        "KEY": "",
        "OTHER": " k ",
        "key": "lower",
        "ROTA_SECRET": " ",
        "ROTA_TOKEN": "t",
        "ROTA_TOKEN_FILE": "/t",
        "HOME": "/",
    }
    rest, secret = parted(given)
    assert secret == {"KEY": "", "OTHER": " k ", "ROTA_TOKEN": "t"}
    assert rest | secret == given
    assert parted(rest)[1] == {}, "a program starts anew once"
    assert parted({}) == ({}, {})


@pytest.mark.usefixtures("_restored")
def test_what_is_handed_over_arrives_byte_for_byte() -> None:
    secret = {"A": "", "B": "x=y\nz\t", "C": os.fsdecode(b"\xff\xfe raw"), "D": "ü" * 70_000}
    descriptor = memory_file(secret)
    assert not os.get_inheritable(descriptor)
    os.environ[HANDED] = str(descriptor)
    assert handed_over() == secret
    assert HANDED not in os.environ
    assert handed_over() == {}, "it is read once"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.usefixtures("_restored")
def test_another_file_is_not_taken_for_it() -> None:
    other = os.memfd_create("brief")
    try:
        for named in (str(other), "", "one", "-1", "99999", "0"):
            os.environ[HANDED] = named
            with pytest.raises(NotHandedOver, match=f"{HANDED}={named} is set"):
                handed_over()
    finally:
        os.close(other)
