"""What a worker may do before there is an attempt for it: the preparation of a kind (`tasks.kind.Kind`)."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import msgpack

from node.execution.order import AttemptLimits, Brief, unpack_brief, unpack_limits
from tasks import access
from tasks.access import NOTHING, Access


class Preparation(NamedTuple):
    """What a preparation needs of its node: variables, and the functions that find its tools (`tasks.needs.Tools`)."""

    env: Mapping[str, str]
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparationBrief:
    """What the supervisor of a prepared process is given.

    `target` is the function to call, as `module:function`; `env` is added to the worker's variables. `number` tells the
    prepared processes of a node apart. `folder` is the member's data folder, `deadline_s` the end of the lease on
    CLOCK_BOOTTIME. `tools` find what the process needs of this machine (`tasks.needs`); `access` is what any attempt
    may reach.
    """

    target: str
    env: Mapping[str, str]
    number: int
    limits: AttemptLimits
    folder: str
    deadline_s: float
    tools: tuple[str, ...] = ()
    access: Access = NOTHING

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


def brief_file(packed: bytes) -> int:
    """A file in memory that holds a brief: its descriptor. Raises `OSError`."""
    descriptor = os.memfd_create("brief", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(packed)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_brief(descriptor: int) -> Brief | PreparationBrief:
    """The brief in a file that supervisor and worker share: its position stays."""
    packed = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    values = msgpack.unpackb(packed)
    if "order" in values:
        return unpack_brief(packed)
    values = values["preparation"]
    values["limits"] = unpack_limits(values["limits"])
    values["tools"] = tuple(values["tools"])
    values["access"] = access.unpacked(values["access"])
    return PreparationBrief(**values)
