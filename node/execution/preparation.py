"""The preparation of a kind (`tasks.kind.Kind`): the work that a worker may do before its attempt exists."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import msgpack

from node.execution.order import AttemptLimits, Brief, unpack_brief, unpack_limits
from tasks.access import NOTHING, Access


class Preparation(NamedTuple):
    """The inputs of a preparation: variables, and the functions that find its tools (`tasks.needs.Tools`)."""

    env: Mapping[str, str]
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparationBrief:
    """The brief of a prepared process's supervisor."""

    #: The function to call, as `module:function`.
    target: str
    #: Environment variables to add for the worker.
    env: Mapping[str, str]
    #: The number of the prepared process, unique on this node.
    number: int
    #: The member's limits of every attempt.
    limits: AttemptLimits
    #: The path of the member's data folder.
    folder: str
    #: The end of the lease, in seconds on CLOCK_BOOTTIME.
    deadline_s: float
    #: The functions that find what the process needs of this machine (`tasks.needs`), each as `module:function`.
    tools: tuple[str, ...] = ()
    #: The paths and addresses that any attempt on this member may reach.
    access: Access = NOTHING

    def pack(self) -> bytes:
        """Pack as msgpack."""
        return bytes(msgpack.packb({"preparation": asdict(self)}))

    @property
    def mark(self) -> str:
        """The value of `RUN_MARK` for the processes of this preparation, until they have an attempt."""
        return f"prepared:{self.number}"

    @property
    def scratch(self) -> Path:
        """The folder of the prepared process. It is removed when the attempt ends, or the process is given up."""
        return prepared_folder(Path(self.folder), self.number)


def prepared_folder(folder: Path, number: int) -> Path:
    """Return the folder of a prepared process in the member's data folder `folder`."""
    return folder / "scratch" / f"prepared.{number}"


def brief_files(brief: Brief | PreparationBrief) -> list[int]:
    """Write the brief, and the attempt's secrets if there are any, into two files in memory. Returns their descriptors.

    Raises `OSError`.
    """
    descriptors = [_file_of(brief.pack())]
    if isinstance(brief, Brief) and (secrets := brief.order.secrets.pack()):
        try:
            descriptors.append(_file_of(secrets))
        except BaseException:
            os.close(descriptors[0])
            raise
    return descriptors


def _file_of(packed: bytes) -> int:
    descriptor = os.memfd_create("brief", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(packed)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_brief(descriptor: int, secrets: int | None = None) -> Brief | PreparationBrief:
    """Read a brief from the files of `brief_files`. Keeps the position of the first, which two processes share."""
    packed = _bytes_of(descriptor)
    values = msgpack.unpackb(packed)
    if "order" in values:
        return unpack_brief(packed, b"" if secrets is None else _bytes_of(secrets))
    values = values["preparation"]
    values["limits"] = unpack_limits(values["limits"])
    values["tools"] = tuple(values["tools"])
    values["access"] = Access.unpacked(values["access"])
    return PreparationBrief(**values)


def _bytes_of(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
