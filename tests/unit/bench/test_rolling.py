"""The judgement of hand-overs."""

from bench.rolling import HAND_OVER_S, HandOver, wrong

NODES = ["node-1", "node-2"]


def hand_over(node: str, took_s: float, *, deaf: bool = False) -> HandOver:
    return HandOver(f"long~{node}", node, deaf=deaf, led=False, took_s=took_s)


def test_all_in_time() -> None:
    assert wrong([hand_over("node-1", 0.2), hand_over("node-2", 0.99, deaf=True)], NODES) == []


def test_one_that_is_too_slow_is_named() -> None:
    for deaf in (False, True):
        [line] = wrong([hand_over("node-1", 0.2), hand_over("node-2", HAND_OVER_S, deaf=deaf)], NODES)
        assert line == "long~node-2 of node-2 was claimed after 1.00 s, not under 1 s"


def test_a_node_that_had_nothing_shows_nothing() -> None:
    assert wrong([hand_over("node-1", 0.2)], NODES) == ["node-2 had nothing to hand over"]
    assert len(wrong([], NODES)) == 2
