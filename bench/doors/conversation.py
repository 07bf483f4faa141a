"""One attacker's connection to a port: what it says, and what it is told."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Address = tuple[str, int]

AGAIN_S: Final = 0.05
"""Until the next try, where a connection was refused."""


@dataclass
class Tally:
    """What became of an attack: connections opened, ended by the node, and refused; answers; this process's work.

    `answered` is of requests with a status, or of guesses. `leaked` is how many guesses were answered with more than
    what somebody without the secret may be told. `held` is the most connections that were open at once.
    """

    opened: int = 0
    ended: int = 0
    refused: int = 0
    answered: int = 0
    leaked: int = 0
    held: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0


async def converse(
    address: Address, said: bytes, tally: Tally, reply: Callable[[bytes], bytes | None] = lambda _: None
) -> bytes:
    """Say this, and what `reply` makes of all that has been heard so far, once; all that was heard until the end.

    An attempt that is refused counts as such, and says nothing. One that is ended in the middle has heard what it has.
    """
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError:
            tally.refused += 1
            await asyncio.sleep(AGAIN_S)
            return b""
        tally.opened += 1
        open_now = tally.opened - tally.ended
        tally.held = max(tally.held, open_now)
        heard, replied = b"", False
        try:
            await loop.sock_sendall(sock, said)
            while data := await loop.sock_recv(sock, 65_536):
                heard += data
                if not replied and (said_next := reply(heard)) is not None:
                    replied = True
                    await loop.sock_sendall(sock, said_next)
        except OSError:
            pass  # ended in the middle: what was heard is what counts
        finally:
            tally.ended += 1
        return heard
