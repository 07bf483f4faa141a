"""Where the members are, and how the library sees them: by their ids, so that their addresses may change."""

from pysyncobj import node as library

from node.runtime.dns import Resolver


class Book:
    """The members' addresses, by id. What the configuration says goes before what the log remembers."""

    def __init__(self, addresses: dict[str, tuple[str, int]], resolver: Resolver) -> None:
        self._addresses = dict(addresses)
        self.resolver = resolver

    def put(self, member: str, address: tuple[str, int]) -> None:
        """A member is somewhere else now."""
        self._addresses[member] = address

    def __getitem__(self, member: str) -> tuple[str, int]:
        return self._addresses[member]

    def node(self, text: str) -> "MemberNode":
        """The library's node for "id" or "id host port", as the log writes it."""
        member, *rest = text.split(" ")
        if rest and member not in self._addresses:
            self._addresses[member] = (rest[0], int(rest[1]))
        return MemberNode(member, self)

    def text(self, member: str) -> str:
        """A member as the log writes it: "id host port"."""
        host, port = self._addresses[member]
        return f"{member} {host} {port}"


class MemberNode(library.TCPNode):  # type: ignore[misc]  # the library ships no types
    """A member as the library sees it. Its id is the member's, so that its address may change."""

    def __init__(self, member: str, book: Book) -> None:
        library.Node.__init__(self, member)
        self._book = book

    @property
    def address(self) -> str:
        """What a connection says first, and what decides who dials whom: the id."""
        return str(self.id)

    @property
    def host(self) -> str:
        """The host of its Raft port."""
        return self._book[self.id][0]

    @property
    def port(self) -> int:
        """Its Raft port."""
        return self._book[self.id][1]

    @property
    def ip(self) -> str | None:
        """The address to dial now, if known."""
        return self._book.resolver.address(self.host)

    def __repr__(self) -> str:
        return f"MemberNode({self.id})"
