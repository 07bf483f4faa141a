"""Files are cut into portions by their bytes and their number."""

from spark_tasks.files.listing import Source
from spark_tasks.storage.packing import packed


def test_files_are_put_into_portions_in_their_order() -> None:
    files = [Source(name, size_bytes) for name, size_bytes in zip("abcde", (3, 4, 19, 0, 1), strict=True)]

    def cut(bytes_max: int, items_max: int | None = None) -> list[str]:
        return ["".join(file.path for file in some) for some in packed(files, bytes_max, items_max)]

    assert cut(10) == ["ab", "c", "de"]
    assert cut(100) == ["abcde"]
    assert cut(100, 2) == ["ab", "cd", "e"]
    assert list(packed([], 10)) == []


def test_what_is_left_after_a_portion_is_cut_as_it_would_have_been_with_it() -> None:
    files = [Source(str(number), number % 7) for number in range(40)]
    all_of_it = list(packed(files, 12, 4))
    for done in range(len(all_of_it)):
        rest = files[sum(map(len, all_of_it[:done])) :]
        assert list(packed(rest, 12, 4)) == all_of_it[done:]
