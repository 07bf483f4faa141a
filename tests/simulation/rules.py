"""The seam at which a mutation is put in: the product's classes and functions that a history is made of."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

from node.execution import attempt_life
from node.liveness.detector import Detector
from node.liveness.lease import Lease
from node.state.entries import HANDLERS
from node.state.value import Result
from tests.simulation.bench import Steps


@dataclass(frozen=True)
class Rules:
    """The product's own, unless a mutation puts another in its place. `without` holds while a history is told."""

    lease: type[Lease] = Lease
    detector: type[Detector] = Detector
    steps: Steps = attempt_life.step
    without: Callable[[], AbstractContextManager[object]] = nullcontext


def handler(entry: type[Any], what: Callable[..., Result]) -> Rules:
    """Entries of a kind are applied otherwise."""
    return Rules(without=lambda: mock.patch.dict(HANDLERS, {entry: what}))


def instead(where: Any, name: str, what: Any) -> Rules:
    """A class or a function has another in its place."""

    def without() -> AbstractContextManager[object]:
        patch: AbstractContextManager[object] = mock.patch.object(where, name, what)
        return patch

    return Rules(without=without)
