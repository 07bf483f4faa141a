"""The wall clock of each node, which can be moved while the node runs: a small library that is loaded before libc's."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("wall_clock.c")


def why_not() -> str | None:
    """Why clocks cannot be moved here; None if they can."""
    return None if shutil.which("cc") else "there is no C compiler (cc) here to make the library that moves a clock"


class Clocks:
    """An offset for each node, in a file below `folder`; the library is compiled when this is made.

    Raises `subprocess.CalledProcessError` where the compiler will not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._library = folder / "wall_clock.so"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-Wall", "-o", str(self._library), str(SOURCE), "-ldl"], check=True
        )

    def environment(self, name: str) -> dict[str, str]:
        """What a node is started with, so that its clock can be moved."""
        if not self._file(name).exists():
            self.move(name, 0.0)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file(name))}

    def move(self, name: str, offset_s: float) -> None:
        """Set a node's wall clock so much ahead of the machine's."""
        # Written in place: the node has this file mapped.
        with self._file(name).open("r+b" if self._file(name).exists() else "wb") as file:
            file.write(struct.pack("=q", int(offset_s * 1_000_000_000)))

    def _file(self, name: str) -> Path:
        return self._folder / name
