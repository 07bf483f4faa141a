"""A folder in which tasks keep files: written whole or once, and listed."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tasks.places.place import Place

ROOT = Path(__file__).parents[3]


def test_of_many_that_write_a_file_at_once_one_does_and_the_rest_change_nothing(tmp_path: Path) -> None:
    together = threading.Barrier(8)
    wrote: list[int] = []

    def write(number: int) -> None:
        together.wait(timeout=30)
        if Place(str(tmp_path)).write_new("log/0.json", str(number).encode()):
            wrote.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    [first] = wrote
    assert Place(str(tmp_path)).read("log/0.json") == str(first).encode()
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["0.json"], "and nothing is left beside it"


def test_a_process_that_is_killed_while_it_writes_a_new_file_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom tasks.places.place import Place\n"
        "os.link = lambda *_, **more: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Place(sys.argv[1]).write_new('0.json', b'{}')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_is_written_once_on_a_file_system_without_files_that_have_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refused(path: str, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return opened(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refused)
    place = Place(str(tmp_path))
    assert [place.write_new("0.json", content) for content in (b"1", b"2")] == [True, False]
    assert place.read("0.json") == b"1"
    assert place.names("") == ["0.json"]


def test_files_are_listed_and_read_together(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    for name in ("a/2", "a/1", "a/deep/3"):
        place.write_whole(name, name.encode())
    assert place.names("a") == ["1", "2", "deep"]
    assert place.names("none") == []
    assert place.read_many(["a/1", "a/none", "a/2"]) == {"a/1": b"a/1", "a/2": b"a/2"}
    assert place.read_many([]) == {}
    place.inside("a/1").remove_folder()
    place.inside("a/deep").remove_folder()
    assert place.names("a") == ["2"]


def test_files_are_named_to_people_by_path_or_url(tmp_path: Path) -> None:
    assert Place(f"file://{tmp_path}").shown("x") == f"{tmp_path}/x"
    assert Place("memory://lake/table").shown("x") == "memory://lake/table/x"
