"""A folder in which tasks keep files: written whole or once, and listed."""

import threading
from pathlib import Path

from tasks.place import Place


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
