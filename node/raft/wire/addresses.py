"""The members' addresses, and the library's nodes, which are identified by member ids, so that addresses may change."""

from pysyncobj import node as library

from node.runtime.dns import Resolver


class AddressBook:
    """The members' addresses, by id. An address from the configuration overrides one from the log."""

    def __init__(self, addresses: dict[str, tuple[str, int]], resolver: Resolver) -> None:
        self._addresses = dict(addresses)
        self.resolver = resolver

    def put(self, member: str, address: tuple[str, int]) -> None:
        """Use another address for a member from now on."""
        self._addresses[member] = address

    def __getitem__(self, member: str) -> tuple[str, int]:
        return self._addresses[member]

    def node(self, text: str) -> "MemberNode":
        """Return the library's node for "id" or "id host port", as the log writes a member."""
        member, *rest = text.split(" ")
        if rest and member not in self._addresses:
            self._addresses[member] = (rest[0], int(rest[1]))
        return MemberNode(member, self)

    def text(self, member: str) -> str:
        """Return a member as the log writes it: "id host port"."""
        host, port = self._addresses[member]
        return f"{member} {host} {port}"


class MemberNode(library.TCPNode):  # type: ignore[misc]  # the library ships no types
    """A member as a node of the library. Its id is the member's id, so that its address may change."""

    def __init__(self, member: str, book: AddressBook) -> None:
        library.Node.__init__(self, member)
        self._book = book

    @property
    def address(self) -> str:
        """The member's id, under the library's name for it. The library compares ids to decide which member dials."""
        return str(self.id)

    @property
    def host(self) -> str:
        """The host of the member's Raft port."""
        return self._book[self.id][0]

    @property
    def port(self) -> int:
        """The member's Raft port."""
        return self._book[self.id][1]

    @property
    def ip(self) -> str | None:
        """The IP address to dial now; None while the host is not resolved."""
        return self._book.resolver.address(self.host)

    def __repr__(self) -> str:
        return f"MemberNode({self.id})"
