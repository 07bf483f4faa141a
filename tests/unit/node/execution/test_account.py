"""Which user an attempt runs as on a member, and which number it gets: decided before anything is done."""

import grp
import pwd
from pathlib import Path

import pytest

from node.execution.account import Account, NoFreeUid, RefusedUser, account_of, lowest_free, of_number, unpack_account
from tasks.kind import Unretryable


def test_a_user_that_the_machine_does_not_have_is_refused_for_good() -> None:
    with pytest.raises(RefusedUser, match="no-such-user: there is no user of this name on node-1") as raised:
        account_of("no-such-user", ("no-such-user",), "node-1")
    assert isinstance(raised.value, Unretryable)


def test_roots_uid_under_another_name_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pwd.getpwnam("root")
    monkeypatch.setattr(pwd, "getpwnam", lambda _: real)
    with pytest.raises(RefusedUser, match=r"toor: it has uid 0 on node-1.* must name root too"):
        account_of("toor", ("toor",), "node-1")
    assert account_of("toor", ("toor", "root"), "node-1").uid == 0


def test_a_user_has_its_own_groups() -> None:
    found = account_of("nobody", ("nobody",), "node-1")
    known = pwd.getpwnam("nobody")
    assert (found.uid, found.gid, found.home) == (known.pw_uid, known.pw_gid, known.pw_dir)
    assert set(found.groups) == {known.pw_gid, *(one.gr_gid for one in grp.getgrall() if "nobody" in one.gr_mem)}


def test_an_account_goes_through_its_frame() -> None:
    account = Account("deploy", 1001, 1002, (1002, 27), "/home/deploy")
    assert unpack_account(account.pack()) == account
    assert unpack_account(b"") is None


def test_a_number_is_given_once_until_it_is_free_again() -> None:
    numbers, used = range(70_000, 70_003), set[int]()
    for expected in numbers:
        assert lowest_free(numbers, used) == expected
        used.add(expected)
    with pytest.raises(NoFreeUid, match="every uid of ROTA_WORK_UIDS=70000-70002 is taken"):
        lowest_free(numbers, used)
    assert lowest_free(numbers, used - {70_001}) == 70_001


def test_a_number_has_no_name_and_no_group() -> None:
    found = of_number(70_000, Path("/scratch"))
    assert (found, found.called) == (Account("", 70_000, 70_000, (), "/scratch"), "uid 70000")
