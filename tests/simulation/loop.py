"""A member's event loop in the world's time, so that its asyncio parts are run as they are, and stand still with it."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from tests.simulation.world import World

T = TypeVar("T")

ROUNDS_MAX = 5_000
"""Callbacks at one moment that would block a real loop."""


class _Handle:
    """A callback that is due: as much of `asyncio.TimerHandle` as is asked for here, in half the time."""

    __slots__ = ("_args", "_callback", "_context", "_when", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, when: float = 0.0
    ) -> None:
        self._callback, self._args, self._context, self._when = callback, args, context, when
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        self._context.run(self._callback, *self._args)

    def __repr__(self) -> str:
        return repr(self._callback)


class Loop:
    """What asyncio's tasks, futures and timeouts ask of a loop, and no more; the lane "loop" of one process."""

    def __init__(self, world: World, me: str, on_error: Callable[[str], None]) -> None:
        self._world, self._me, self._on_error = world, me, on_error
        self._ready: deque[_Handle] = deque()
        self._armed = False
        self._dead = False
        self._context = contextvars.Context()
        self._tasks: list[asyncio.Task[Any]] = []
        self._asyncs = cast(asyncio.AbstractEventLoop, self)

    def entered(self, make: Callable[[], T]) -> T:
        """Call something for which this is the running loop."""
        asyncio._set_running_loop(self._asyncs)
        try:
            return make()
        finally:
            asyncio._set_running_loop(None)

    def time(self) -> float:
        return self._world.clock_s(self._me)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._dead

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context or self._context)
        if not self._dead:
            self._ready.append(handle)
            if not self._armed:
                self._armed = True
                self._world.within(self._me, "loop", 0.0002, self._turn)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context or self._context, when)

        def due() -> None:
            if not handle.is_cancelled:
                self._ready.append(handle)
                self._turn()

        if not self._dead:
            after_s = self._world.when_s(self._me, when) - self._world.now_s
            self._world.within(self._me, "loop", max(0.0, after_s), due, last=True)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._asyncs)

    def create_task(
        self, coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any], *, name: str | None = None, **_: Any
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._asyncs, name=name)
        self._tasks.append(task)
        if len(self._tasks) > 256:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._dead:
            self._on_error(f"{context.get('message')}: {context.get('exception')!r}")

    def _turn(self) -> None:
        self._armed = False
        asyncio._set_running_loop(self._asyncs)
        try:
            ready, rounds = self._ready, 0
            while ready:
                handle = ready.popleft()
                if not handle.is_cancelled:
                    try:
                        handle.run()
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        context = {"message": f"Exception in callback {handle}", "exception": error}
                        self.call_exception_handler(context)
                rounds += 1
                if rounds > ROUNDS_MAX:
                    self._on_error("the event loop does not come to rest")
                    return
        finally:
            asyncio._set_running_loop(None)

    def bury(self) -> None:
        """The process is dead and the history over: close what was suspended, which has no effect any more."""
        self._dead = True
        self._ready.clear()
        asyncio._set_running_loop(self._asyncs)
        try:
            for task in self._tasks:
                if not task.done():
                    task.get_coro().close()
        finally:
            asyncio._set_running_loop(None)
