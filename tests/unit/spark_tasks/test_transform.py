"""A transform that is a function is found by its entry point. Without a JVM."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from spark_tasks.transform.apply import TransformUnfit, transformed
from spark_tasks.transform.params import Transform


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a function `joined` in the entry-point group."""
    (tmp_path / "transform_of_a_test.py").write_text(
        "def joined(source, lookups, args):\n    return source, sorted(lookups), args['by']\n"
    )
    about = tmp_path / "transform_of_a_test-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: transform-of-a-test\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[rota.transforms]\njoined = transform_of_a_test:joined\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_function_is_given_the_rows_the_lookups_and_its_args() -> None:
    rows: Any = "rows"
    how = Transform(function="joined", args={"by": 2})
    made: Any = transformed(how, rows, {"weather": rows, "planes": rows})
    assert made == ("rows", ["planes", "weather"], 2)


@pytest.mark.usefixtures("installed")
def test_a_function_that_is_not_installed_is_named_with_those_that_are() -> None:
    rows: Any = "rows"
    with pytest.raises(TransformUnfit, match=r"no function 'absent' .* rota\.transforms; it has .*joined"):
        transformed(Transform(function="absent"), rows, {})


def test_without_a_transform_the_rows_stay_as_they_are() -> None:
    rows: Any = "rows"
    assert transformed(None, rows, {}) is rows
