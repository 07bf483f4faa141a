"""Where the cache of Spark's classes is, and the JVM's options for it. Without Java."""

from pathlib import Path

import pytest

from spark_tasks.spark import make_class_cache
from spark_tasks.spark.class_cache import cache_file, making, using
from spark_tasks.spark.java import Java, jvm_option


def _java(home: Path, library: str = "a library", major: int = 17) -> Java:
    (home / "lib" / "server").mkdir(parents=True, exist_ok=True)
    (home / "lib" / "server" / "libjvm.so").write_text(library)
    return Java(home, major, True)


def test_each_java_and_each_pyspark_has_a_cache_of_its_own(tmp_path: Path) -> None:
    first, other = _java(tmp_path / "a"), _java(tmp_path / "b")
    file = cache_file(first, "4.0.1", tmp_path)
    assert file == cache_file(first, "4.0.1", tmp_path)
    assert file.parent == tmp_path / "share" / "rota"
    updated = cache_file(_java(tmp_path / "a", "another library"), "4.0.1", tmp_path)
    assert len({file, cache_file(other, "4.0.1", tmp_path), cache_file(first, "4.1.0", tmp_path), updated}) == 4
    nowhere = Java(tmp_path / "none", 17, True)
    assert cache_file(nowhere, "4.0.1", tmp_path) != file


@pytest.mark.parametrize(
    ("major", "option", "suffix"), [(17, "-XX:SharedArchiveFile=", "jsa"), (25, "-XX:AOTCache=", "aot")]
)
def test_a_cache_is_used_once_it_is_there(tmp_path: Path, major: int, option: str, suffix: str) -> None:
    java = _java(tmp_path / "a", major=major)
    file = cache_file(java, "4.0.1", tmp_path)
    assert file.suffix == f".{suffix}"
    assert using(java, file) == []
    file.parent.mkdir(parents=True)
    file.touch()
    used, quiet = using(java, file)
    assert used == f"{option}{file}"
    assert quiet.startswith("-Xlog:")


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b', "a\\ b"])
def test_a_path_is_one_word_for_sparks_launcher(name: str) -> None:
    """It takes what is between double quotes as it is, but for a backslash before a quote or a backslash."""
    option = jvm_option(f"-Da=/{name}/c")
    assert (option[0], option[-1]) == ('"', '"')
    assert option[1:-1].replace('\\"', '"').replace("\\\\", "\\") == f"-Da=/{name}/c"


def test_a_jvm_that_makes_a_cache_is_told_where() -> None:
    assert making(Java(Path("/java"), 17, True), Path("/c.jsa")) == [
        "-XX:ArchiveClassesAtExit=/c.jsa",
        "-Xlog:cds*=off",
    ]
    assert making(Java(Path("/java"), 25, True), Path("/c.aot")) == ["-XX:AOTCacheOutput=/c.aot", "-Xlog:aot*=off"]


@pytest.mark.parametrize("starts", [True, False])
def test_a_cache_is_kept_once_spark_has_started_with_it_and_replaces_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    java = _java(tmp_path / "java")
    file = cache_file(java, "4.0.1", tmp_path)
    file.parent.mkdir(parents=True)
    old = file.with_name("spark-classes-0123.jsa")
    old.touch()

    def session_s(_scratch: Path, options: list[str], what: str) -> float:
        if what == "work":
            [made] = file.parent.glob(".making-*")
            (made / file.name).write_text("classes")
        elif options and not starts:
            raise make_class_cache.NotMade("Spark did not start")
        return 3.0 if options else 8.0

    monkeypatch.setattr(make_class_cache, "_session_s", session_s)
    if starts:
        assert make_class_cache.make(java, file) == (8.0, 3.0)
    else:
        with pytest.raises(make_class_cache.NotMade):
            make_class_cache.make(java, file)
    assert [each.name for each in file.parent.iterdir()] == [file.name if starts else old.name]
