"""Which of the acknowledgements that waited for the journal are sent."""

from typing import Any

from node.raft.acknowledgements import Acknowledgements

REPEAT_S = 0.1


def matched(index: int, term: int = 3, **more: Any) -> dict[str, Any]:
    """A plain acknowledgement: the log matches up to an index."""
    return {"type": "next_node_idx", "next_node_idx": index + 1, "success": True, "reset": False, "term": term, **more}


def waiting(*said: tuple[str, dict[str, Any]]) -> Acknowledgements:
    made = Acknowledgements(REPEAT_S)
    for node, message in said:
        made.add(node, message)
    return made


def test_of_those_to_one_leader_the_last_includes_the_ones_before() -> None:
    made = waiting(("a", matched(1)), ("a", matched(2)), ("a", matched(3)))
    assert made.take(3) == [("a", matched(3))]
    assert made.take(3) == [], "each is taken once"


def test_one_that_asks_for_earlier_entries_or_a_reset_includes_nothing_and_is_included_in_nothing() -> None:
    said = [("a", matched(1)), ("a", matched(1, success=False)), ("a", matched(2, reset=True)), ("a", matched(3))]
    assert waiting(*said).take(3) == said


def test_one_to_another_leader_includes_nothing() -> None:
    said = [("a", matched(1)), ("b", matched(2))]
    assert waiting(*said).take(3) == said


def test_one_of_an_earlier_term_is_void() -> None:
    assert waiting(("a", matched(1, term=2)), ("b", matched(2))).take(3) == [("b", matched(2))]


def test_the_same_is_repeated_after_a_while_or_on_another_connection() -> None:
    made = Acknowledgements(REPEAT_S)
    made.sent("a", "connection", matched(1), 10.0)
    repeated = [
        made.is_repeated("a", "connection", matched(1), 10.0 + REPEAT_S / 2),
        made.is_repeated("a", "connection", matched(1), 10.0 + 2 * REPEAT_S),
        made.is_repeated("a", "another", matched(1), 10.0),
        made.is_repeated("a", "connection", matched(2), 10.0),
        made.is_repeated("b", "connection", matched(1), 10.0),
    ]
    assert repeated == [True, False, False, False, False]
