"""The order of rows along a Z-order curve."""

import random

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from spark_tasks.maintain.z_order import ZOrder, portions, quantiles  # noqa: E402  after the check that it is there


def test_places_interleave_the_bits_of_ranks() -> None:
    sample = pa.table({"x": list(range(8)) * 8, "y": [number // 8 for number in range(64)]})
    order = ZOrder(["x", "y"], sample)
    places = order.places(pa.record_batch({"x": [0, 1, 0, 1, 2, 7], "y": [0, 0, 1, 1, 0, 7]})).to_pylist()
    assert places[0] < places[2] < places[1] < places[3] < places[4] < places[5]


def test_a_single_column_is_in_its_own_order() -> None:
    draw = random.Random(1)
    values = [draw.random() for _ in range(1000)]
    order = ZOrder(["x"], pa.table({"x": values}))
    places = order.places(pa.record_batch({"x": sorted(values)})).to_pylist()
    assert places == sorted(places)
    assert len(set(places)) > 900


def test_nulls_nan_and_values_beyond_the_sample_have_places() -> None:
    order = ZOrder(["x", "t"], pa.table({"x": [0.0, 1.0, float("nan"), None], "t": ["a", "b", None, "c"]}))
    rows = pa.record_batch({"x": pa.array([None, float("nan"), -1e9, 1e9]), "t": pa.array([None, "", "b", "zz"])})
    places = order.places(rows).to_pylist()
    assert all(place >= 0 for place in places)
    assert max(places) == places[3]
    assert ZOrder(["x"], pa.table({"x": pa.array([], pa.float64())})).places(rows).to_pylist() == [0, 0, 0, 0]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 6, 7, 30, 255])
def test_portions_are_those_that_bounds_divide(number: int) -> None:
    draw = random.Random(number)
    bounds = sorted(draw.randrange(1000) for _ in range(number))
    places = [*(draw.randrange(1000) for _ in range(200)), 0, (1 << 63) - 1]
    found = portions(pa.array(places, pa.int64()), pa.array(bounds, pa.int64())).to_pylist()
    assert found == [sum(bound <= place for bound in bounds) for place in places]


def test_quantiles_divide_values_evenly() -> None:
    assert quantiles(pa.array([None, *range(100)]), 3).to_pylist() == [25, 50, 75]
    assert quantiles(pa.array([], pa.int64()), 3).to_pylist() == []
    assert quantiles(pa.array(["b", "a"]), 1).to_pylist() == ["b"]
