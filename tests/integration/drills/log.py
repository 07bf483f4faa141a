"""An attempt of the kind `wal` in a thread, for as long as a test needs it."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.demo.postgres import Server
from node.cli.local import wait_for
from tasks.places.place import Place
from tasks.wal.archive import archived_systems, read_archive
from tasks.wal.kind import Wal
from tasks.wal.params import WalParams
from testkit.fake_context import FakeContext

WAIT_S = 60.0


@contextmanager
def archived_until(to: Path, server: Server, named: dict[str, Any]) -> Iterator[Callable[[int], None]]:
    """Archive the log of a server as the task `wal` during the block. Yields a function that waits for an LSN."""
    given = {"servers": [{"url": server.url("postgres")} | named], "destination": str(to), "piece_s": 0.2}
    scratch = to / "wal-scratch"
    scratch.mkdir(parents=True)
    ctx = FakeContext(WalParams.model_validate(given), scratch, task="wal", secrets={"pg": server.password})
    place = Place(f"{to}/wal")

    def is_archived(lsn: int) -> bool:
        systems = archived_systems(place)
        position = read_archive(place.inside(systems[0])).position if systems else None
        return position is not None and position.lsn >= lsn

    def reached(lsn: int) -> None:
        wait_for("archived log", lambda: is_archived(lsn), WAIT_S)

    thread = threading.Thread(target=Wal().run, args=(ctx,))
    thread.start()
    try:
        yield reached
    finally:
        ctx.cancelled = True
        thread.join()
        shutil.rmtree(scratch)
