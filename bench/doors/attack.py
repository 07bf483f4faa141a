"""What is tried against a port, from a process of its own: its work must not slow the client that measures.

Nothing here knows the cluster's secret. Each attack goes on for so long and tells what came of it.
"""

import asyncio
import re
import resource
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

from bench.doors.conversation import Address, Tally, converse
from bench.doors.guesses import guess_heartbeat, guess_raft

Kind = Literal["idle", "half", "bombs", "garbage", "heartbeat", "raft"]

HALF: Final = b"PUT /v1/tasks/short HTTP/1.1\r\nHost: localhost\r\nX-Never: "
GARBAGE: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage\r\n\r\n"
BOMB_MIB: Final = 256
"""What a bomb would be, inflated. It is a quarter of a MiB itself."""

SPARE: Final = 256
"""Descriptors of this process besides its connections."""


def ready() -> None:
    """Nothing: for who waits until a process has loaded all this."""


def attack(kind: Kind, address: Address, count: int, seconds: float, token: str | None = None) -> Tally:
    """`count` attackers at once for `seconds`. Raises `ValueError` where this process may not have the descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ValueError(f"{count} connections want a limit of {wanted} descriptors, and the hard one is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    tries: dict[Kind, Callable[[], Callable[[Tally], Awaitable[None]]]] = {
        "idle": lambda: partial(_hold, address, b""),
        "half": lambda: partial(_again, partial(_hold, address, HALF)),
        "bombs": lambda: partial(_again, partial(_ask, address, bomb(token))),
        "garbage": lambda: partial(_again, partial(_ask, address, GARBAGE)),
        "heartbeat": lambda: partial(_again, partial(guess_heartbeat, address)),
        "raft": lambda: partial(_again, partial(guess_raft, address)),
    }
    return asyncio.run(_attack(tries[kind](), count, seconds))


def bomb(token: str | None) -> bytes:
    """A request whose body is small, and large once it is inflated."""
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    body = b"".join(packer.compress(zeros) for _ in range(BOMB_MIB)) + packer.flush()
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Encoding: gzip\r\n{shown}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _attack(one: Callable[[Tally], Awaitable[None]], count: int, seconds: float) -> Tally:
    tally, begun, cpu_s = Tally(), time.monotonic(), time.process_time()
    attackers = [asyncio.create_task(_one(one, tally)) for _ in range(count)]
    _, pending = await asyncio.wait(attackers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for attacker in pending:
        attacker.cancel()
    for result in await asyncio.gather(*attackers, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    tally.seconds, tally.cpu_s = time.monotonic() - begun, time.process_time() - cpu_s
    return tally


async def _one(attacker: Callable[[Tally], Awaitable[None]], tally: Tally) -> None:
    await attacker(tally)
    # One that has no more to do waits for the others: the attack is as long as was said.
    await asyncio.get_running_loop().create_future()


async def _again(once: Callable[[Tally], Awaitable[None]], tally: Tally) -> None:
    while True:
        await once(tally)


async def _hold(address: Address, said: bytes, tally: Tally) -> None:
    """A connection that says so much and no more, until the node ends it."""
    await converse(address, said, tally)


async def _ask(address: Address, said: bytes, tally: Tally) -> None:
    heard = await converse(address, said, tally)
    tally.answered += re.match(rb"HTTP/1\.[01] 4", heard) is not None
