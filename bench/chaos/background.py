"""Threads that go on beside the faults. One that ends by an error leaves that, so that its silence is noticed."""

import threading
import traceback
from collections.abc import Callable


class Background:
    """A thread that runs `work`, from `start` until `over` is set; `failed` is the error that ended it before."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        self.name = name
        self.over = threading.Event()
        self.failed: str | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, if it has begun; returns when it has."""
        self.over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def found(self) -> list[str]:
        """What is wrong with it, as the checkers say such things."""
        return [] if self.failed is None else [f"the thread {self.name} has ended: {self.failed}"]

    def _run(self) -> None:
        try:
            self._work(self.over)
        except Exception:  # noqa: BLE001 - whatever it is, it is kept, and found at the end
            self.failed = traceback.format_exc()
