"""A `Context` for tests of kinds: it keeps what an attempt says, and can be told to fence, to stop or to crash."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgpack
from pydantic import BaseModel

from tasks.access import EVERYTHING, Access
from tasks.kind import MissingSecret
from tasks.secret import SecretFile

P = TypeVar("P", bound=BaseModel)


@dataclass
class FakeContext(Generic[P]):
    """One attempt. `before_checkpoint` is called with each value before it is kept, and may raise."""

    params: P
    scratch: Path
    task: str = "task"
    node: str = "node-1"
    cluster: str = "cluster-1"
    run_id: str = "task~1"
    attempt: int = 1
    token: int = 1
    fire_at: datetime = datetime(2026, 11, 21, tzinfo=UTC)
    window_start: datetime | None = None
    succeeded_at: datetime | None = None
    checkpoint: Any = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    before_checkpoint: Callable[[Any], None] = lambda value: None
    cancelled: bool = False
    access: Access = EVERYTHING
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("attempt"))
    saved: list[Any] = field(default_factory=list)
    shown: list[tuple[float, float | None, str]] = field(default_factory=list)

    def save_checkpoint(self, value: Any) -> None:
        self.before_checkpoint(value)
        assert len(msgpack.packb(value)) <= 64 * 1024
        self.saved.append(value)

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        self.shown.append((done, total, unit))

    def secret(self, reference: Any) -> str:
        name = reference.secret if isinstance(reference, SecretFile) else str(reference)
        if name not in self.secrets:
            raise MissingSecret(f"secret {name!r} is not here")
        return self.secrets[name]
