"""Which of the acknowledgements that waited for the journal are sent."""

from typing import Any

from node.raft.transport.acknowledgements import Acknowledgements

REPEAT_S = 0.1


def matched(index: int, term: int = 3, **more: Any) -> dict[str, Any]:
    """A plain acknowledgement: the log matches up to an index."""
    return {"type": "next_node_idx", "next_node_idx": index + 1, "success": True, "reset": False, "term": term, **more}


def waiting(*said: tuple[str, dict[str, Any]]) -> Acknowledgements:
    made = Acknowledgements(REPEAT_S)
    for node, message in said:
        made.add(node, message)
    return made


def test_the_last_acknowledgement_to_a_leader_supersedes_the_earlier_ones() -> None:
    made = waiting(("a", matched(1)), ("a", matched(2)), ("a", matched(3)))
    assert made.take(3) == [("a", matched(3))]
    assert made.take(3) == [], "each is taken once"


def test_a_request_for_earlier_entries_or_a_reset_is_never_merged() -> None:
    said = [("a", matched(1)), ("a", matched(1, success=False)), ("a", matched(2, reset=True)), ("a", matched(3))]
    assert waiting(*said).take(3) == said


def test_acknowledgements_to_different_leaders_are_not_merged() -> None:
    said = [("a", matched(1)), ("b", matched(2))]
    assert waiting(*said).take(3) == said


def test_an_acknowledgement_to_send_of_an_earlier_term_is_dropped() -> None:
    assert waiting(("a", matched(1, term=2)), ("b", matched(2))).take(3) == [("b", matched(2))]


def test_an_acknowledgement_is_repeated_after_an_interval_or_on_a_new_connection() -> None:
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
