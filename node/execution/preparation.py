"""What a worker may do before there is an attempt for it: the preparation of a kind (`tasks.kind.Kind`)."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgpack

from node.execution.order import AttemptLimits, Brief, unpack_brief


@dataclass(frozen=True, slots=True)
class PreparationBrief:
    """What the supervisor of a prepared process is given.

    `target` is the function to call, as `module:function`; `env` is added to the worker's variables. `number` tells the
    prepared processes of a node apart. `folder` is the member's data folder, `deadline_s` the end of the lease on
    CLOCK_BOOTTIME.
    """

    target: str
    env: Mapping[str, str]
    number: int
    limits: AttemptLimits
    folder: str
    deadline_s: float

    def pack(self) -> bytes:
        """As msgpack."""
        return bytes(msgpack.packb({"preparation": asdict(self)}))

    @property
    def mark(self) -> str:
        """What marks the processes of this preparation, until they have an attempt."""
        return f"prepared:{self.number}"

    @property
    def scratch(self) -> Path:
        """The folder of the prepared process, which is removed when its attempt ends, or when it is given up."""
        return prepared_folder(Path(self.folder), self.number)


def prepared_folder(folder: Path, number: int) -> Path:
    """The folder of a prepared process in the member's data folder `folder`."""
    return folder / "scratch" / f"prepared.{number}"


def read_brief(descriptor: int) -> Brief | PreparationBrief:
    """The brief in a file that supervisor and worker share: its position stays."""
    packed = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    values = msgpack.unpackb(packed)
    if "order" in values:
        return unpack_brief(packed)
    values = values["preparation"]
    values["limits"] = AttemptLimits(**values["limits"])
    return PreparationBrief(**values)
