"""Looks up the names of receivers, in threads that nothing else needs."""

import socket
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from node.notify.side_thread import in_side_thread

LOOK_UP_S: Final = 8.0
"""How long a name server may take to answer."""


class SideResolver(AbstractResolver):
    """Implements aiohttp's resolver."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises `OSError`."""

        def look_up() -> list[ResolveResult]:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            return [
                ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=proto, flags=numeric)
                for kind, _, proto, _, address in found
            ]

        try:
            return await in_side_thread(look_up, LOOK_UP_S)
        except TimeoutError:
            raise OSError(None, f"no name server answered within {LOOK_UP_S:g} s") from None

    async def close(self) -> None:
        """Nothing is kept open."""
