"""A running kind's view of the cluster: the worker's implementation of `tasks.kind.Context`."""

import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgpack
from pydantic import BaseModel

from node.execution import frames
from node.execution.order import CHECKPOINT_BYTES_MAX, Order
from node.execution.supervisor_link import SupervisorLink
from tasks.access import Access
from tasks.errors import Fenced
from tasks.secret import Redactor, reference_of

ASK_AGAIN_S: Final = 0.5
SECRET_BYTES_MIN: Final = 8
"""Checkpoints are searched for secrets of at least this size. The bytes of a shorter secret may occur by chance."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AttemptContext:
    """One attempt's view of the cluster. Implements `tasks.kind.Context`.

    `saw_stop` is True once the kind has read the property `cancelled` and got True.
    """

    def __init__(
        self,
        order: Order,
        params: BaseModel,
        link: SupervisorLink,
        scratch: Path,
        redactor: Redactor,
    ) -> None:
        self._order = order
        self._params = params
        self._link = link
        self._scratch = scratch
        self._redactor = redactor
        self._checkpoint = None if order.checkpoint is None else _unpacked(order.checkpoint)
        self._log = logging.getLogger("rota.task")
        self.saw_stop = False

    @property
    def params(self) -> Any:
        """The task's validated params."""
        return self._params

    @property
    def task(self) -> str:
        """The task's name."""
        return self._order.task

    @property
    def node(self) -> str:
        """The member on which the attempt runs."""
        return self._order.node

    @property
    def cluster(self) -> str:
        """The id of the cluster."""
        return self._order.cluster

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._order.run_id

    @property
    def attempt(self) -> int:
        """The number of this attempt at the run, from 1."""
        return self._order.attempt

    @property
    def token(self) -> int:
        """The claim's fencing token."""
        return self._order.token

    @property
    def fire_at(self) -> datetime:
        """When the run was due."""
        return _EPOCH + timedelta(microseconds=self._order.fire_at_us)

    @property
    def window_start(self) -> datetime | None:
        """When the window of the occurrence begins."""
        at_us = self._order.window_start_us
        return None if at_us is None else _EPOCH + timedelta(microseconds=at_us)

    @property
    def succeeded_at(self) -> datetime | None:
        """When a run of the task succeeded last."""
        at_us = self._order.succeeded_at_us
        return None if at_us is None else _EPOCH + timedelta(microseconds=at_us)

    @property
    def checkpoint(self) -> Any:
        """The last committed checkpoint of this run; None if there is none."""
        return self._checkpoint

    def save_checkpoint(self, value: Any) -> None:
        """Commit `value` as the checkpoint. Raises `Fenced`, and `ValueError` if it is too large or holds a secret."""
        packed = bytes(msgpack.packb(value, datetime=True))
        if len(packed) > CHECKPOINT_BYTES_MAX:
            raise ValueError(f"the checkpoint has {len(packed)} bytes; {CHECKPOINT_BYTES_MAX} at most are allowed")
        if self._redactor.holds(packed, SECRET_BYTES_MIN):
            raise ValueError("the checkpoint contains a secret's value, which may not be replicated")
        # The outcome is unknown while there is no quorum. Retrying is safe, because the data is the same.
        while (code := self._link.commit(packed)) == "unknown":
            time.sleep(ASK_AGAIN_S)
        if code == "fenced":
            raise Fenced(f"another attempt has taken over {self.run_id} from attempt {self.attempt}")
        if code != "ok":
            raise ValueError(f"the checkpoint was refused: {code}")
        self._checkpoint = _unpacked(packed)

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        """Report the progress of the work. Raises `ValueError` for figures that are not finite."""
        frame = frames.ProgressFrame(
            float(done), None if total is None else float(total), str(unit)[: frames.UNIT_CHARS_MAX]
        )
        if fault := frames.progress_fault(frame):
            raise ValueError(fault)
        self._link.progress(frame)

    @property
    def log(self) -> logging.Logger:
        """The attempt's log."""
        return self._log

    @property
    def scratch(self) -> Path:
        """The attempt's scratch folder."""
        return self._scratch

    def secret(self, reference: Any) -> str:
        """Resolve a secret that the params refer to. Raises `MissingSecret`."""
        value = self._link.secret(reference_of(reference))
        self._redactor.learn(value)
        return value

    @property
    def access(self) -> Access:
        """The paths and addresses that the attempt may reach from this member."""
        return self._order.access

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should stop."""
        if self._link.stop is None:
            return False
        self.saw_stop = True
        return True


def _unpacked(packed: bytes) -> Any:
    return msgpack.unpackb(packed, strict_map_key=False, timestamp=3)
