"""The rules about offers and kept places, switched off (`tests.simulation.mutants`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from unittest import mock

from node.duty import decide, sharing
from node.duty.duty import Duty
from node.duty.sharing import Sharing
from node.state import offers
from node.state.value import Member, TaskRow
from tests.simulation.rules import Rules, instead


def finds_nobody(_self: Sharing, _order: Sequence[str], _kind: str, _besides: str = "", **_how: bool) -> None:
    """Nothing is offered."""


def keeps_nothing(_self: Duty, _me: Member) -> dict[str, int]:
    """Batch work takes all places."""
    return {}


def anything(_row: TaskRow) -> bool:
    """Tasks that are kept on one member are offered, too."""
    return True


@contextmanager
def offers_anything() -> Iterator[None]:
    """Neither the owner nor the state asks whether a task is kept on one member."""
    with mock.patch.object(offers, "may_be_offered", anything), mock.patch.object(decide, "may_be_offered", anything):
        yield


OFFER_MUTANTS: Final[dict[str, Rules]] = {
    "offer-made": instead(Sharing, "with_room", finds_nobody),
    "offer-ends": instead(sharing, "OFFER_US", 10**18),
    "offer-not-of-kept": Rules(without=offers_anything),
    "places-kept": instead(Duty, "_kept", keeps_nothing),
}
"""By name."""

OFFERS_SHOWN_BY: Final[dict[str, int]] = {
    "offer-made": 162,
    "offer-ends": 2,
    "offer-not-of-kept": 2,
    "places-kept": 2,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
