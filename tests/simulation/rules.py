"""The seam at which a mutation is put in: the product's classes and functions that a history is made of."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from node.execution import attempt_life
from node.liveness.detector import Detector
from node.liveness.lease import Lease
from tests.simulation.bench import Steps


@dataclass(frozen=True)
class Rules:
    """The product's own, unless a mutation puts another in its place. `without` holds while a history is told."""

    lease: type[Lease] = Lease
    detector: type[Detector] = Detector
    steps: Steps = attempt_life.step
    without: Callable[[], AbstractContextManager[object]] = nullcontext
