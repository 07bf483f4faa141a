"""The base of all entries of the replicated log, and `applies`, which declares one.

Each entry is declared in the file of its topic, beside the handler that applies it. Its dataclass declares its fields,
which also determine its packed form (`node.state.shape`). The decorator `applies` gives it a code and a handler, in
the tables below; `codec` packs entries by the codes, and `apply` calls the handlers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from node.state.draft import Draft
from node.state.value import Result


@dataclass(frozen=True, slots=True)
class Entry:
    """A change that can be proposed. An entry with a `token` is refused unless the token is the run's present one.

    Later versions add fields only at its end, with a default.
    """

    #: When it was proposed, in microseconds since the epoch, by the proposer's wall clock.
    at_us: int


E = TypeVar("E", bound=Entry)

CODES: Final[dict[int, type[Entry]]] = {}
"""The entry for each code in the log."""

HANDLERS: Final[dict[type[Entry], Callable[[Draft, Any], Result]]] = {}
"""The handler of each entry. It changes the draft and returns a result. It is pure and total: if it cannot accept an
entry, it returns a refusal with a code."""


def applies(entry: type[E], *, code: int) -> Callable[[Callable[[Draft, E], Result]], Callable[[Draft, E], Result]]:
    """Decorate the handler of an entry, and give the entry its code in the log. Codes are never changed nor reused.

    Raises `ValueError` if another entry has the code.
    """

    def declare(handler: Callable[[Draft, E], Result]) -> Callable[[Draft, E], Result]:
        if code in CODES:
            raise ValueError(f"code {code} is that of {CODES[code].__name__}, so {entry.__name__} cannot have it")
        CODES[code] = entry
        HANDLERS[entry] = handler
        return handler

    return declare


@dataclass(frozen=True, slots=True)
class Seed:
    """A member before it has joined, as named by ROTA_MEMBERS or POST /v1/members."""

    id: str
    host: str
    raft_port: int
    http_port: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that this version cannot read: an unknown `code`, or fields of wrong types.

    It is refused; its proposal is counted and its result kept like any other.
    """

    code: int
    why: str


@dataclass(frozen=True, slots=True)
class ProposalId:
    """The proposer, its session and a sequence number, by which a retry is recognized.

    A session is one start of a member's process; a member's sessions only grow. Sequence numbers begin with 1.
    """

    proposer: str
    session: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry and its id. One Raft entry holds a list of these."""

    id: ProposalId
    entry: Entry | Unreadable
