"""Specs as they arrive: from JSON to entries, with every field that is not right named."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from node.http.node_port import Kinds
from node.http.problems import MAX_ERRORS, Problem, field_errors, invalid, invalid_field
from node.http.request_context import UNKEPT, Call, string_list
from node.peer.protocol import PeerAway
from node.state.entries import Put
from node.state.value import State
from tasks.field_errors import FieldError, Path, dotted
from tasks.kinds import KindError
from tasks.spec import NODE_LABEL, Spec

THREAD_FROM: Final = 50
"""Lists of this many specs and more are checked off the event loop."""


class Given(NamedTuple):
    """Params, and whether the task that they are for is bound to one member."""

    params: Mapping[str, Any]
    bound: bool


class Checked(NamedTuple):
    """A spec with nothing wrong but, perhaps, its kind or what the kind says of its params; and what is kept of it.

    Not the spec: it is a score of objects, and a list of a thousand has the collector of garbage look at all of them.
    """

    name: str
    kind: str
    params: Mapping[str, Any]
    group: Mapping[str, str]
    pin: str | None
    put: Put

    @property
    def given(self) -> Given:
        """What the kind checks of it."""
        return Given(self.params, NODE_LABEL in self.group)


async def one_spec(call: Call, name: str) -> Checked:
    """The spec that was PUT under `name`; its own name may be left out, and must agree. Raises `Problem`."""
    given = await call.json()
    if not isinstance(given, dict):
        raise invalid_field("", "must be an object: a task's definition")
    if given.setdefault("name", name) != name:
        raise invalid_field("name", f"is {given['name']!r} in the body and {name!r} in the path: they must agree")
    checked = _checked(given, ())
    errors = await _kind_errors(call, [checked], lambda _: ())
    if errors:
        raise invalid(errors)
    return checked


async def many_specs(call: Call) -> list[Checked]:
    """A list of specs, all of them right. Raises `Problem`, with fields such as `[3].retry.attempts`."""
    given = await call.json()
    if not isinstance(given, list):
        raise invalid_field("", "must be a list of task definitions (PUT /v1/tasks/{name} takes a single one)")
    if not given:
        raise invalid_field("", "the list is empty")
    specs = await asyncio.to_thread(all_checked, given) if len(given) >= THREAD_FROM else all_checked(given)
    errors = await _kind_errors(call, specs, lambda position: (position,))
    if errors:
        raise invalid(errors)
    return specs


async def check_params(call: Call, kind: str, given: Sequence[Given]) -> list[list[FieldError]]:
    """What is wrong with each of `given`, by the kind's own model: here, or on a member that has the kind.

    Raises `Problem` member-away if no member that has it answers.
    """
    kinds = call.node.kinds
    if kind in kinds.names():
        try:
            if len(given) >= THREAD_FROM:
                return await asyncio.to_thread(_all_wrong, kinds, kind, given)
            return _all_wrong(kinds, kind, given)
        except KindError:
            pass  # it does not load here; it may elsewhere
    having = members_offering(call.state, kind)
    for member in having:
        if member != call.node.facts.node:
            try:
                params, bound = [each.params for each in given], [each.bound for each in given]
                return await call.service.peers.check(member, kind, params, bound, call.service.limits.peer_log_s)
            except PeerAway:
                continue
    raise Problem(
        "member-away",
        f"the kind {kind!r} is not usable on this member, so its params cannot be checked here, "
        f"and no member that offers it answers ({string_list(having)})",
        members=having,
    )


def _all_wrong(kinds: Kinds, kind: str, given: Sequence[Given]) -> list[list[FieldError]]:
    return [list(kinds.check(kind, each.params, bound=each.bound)) for each in given]


def members_offering(state: State, kind: str) -> list[str]:
    """The members that offer a kind, those that are up first."""
    offering = [member for member in state.members.values() if kind in member.kinds]
    return [member.id for member in sorted(offering, key=lambda member: (member.status != "up", member.id))]


def offered_kinds(state: State) -> frozenset[str]:
    """The kinds that some member offers, up or not."""
    return frozenset[str]().union(*(member.kinds for member in state.members.values()))


def _checked(given: Any, place: Path) -> Checked:
    """The spec that stands at `place` in the body. Raises `Problem` invalid."""
    try:
        spec = Spec.model_validate(given)
    except ValidationError as error:
        raise invalid([_at(place, wrong) for wrong in field_errors(error)]) from None
    put = Put(kept(spec.pack, (*place, "params")))
    return Checked(spec.name, spec.kind, spec.params, spec.group, spec.pin, put)


def all_checked(given: list[Any]) -> list[Checked]:
    """The specs of a list, which is emptied meanwhile. Raises `Problem` invalid, for all that is wrong."""
    specs: list[Checked] = []
    errors: list[FieldError] = []
    for position in range(len(given)):
        try:
            specs.append(_checked(given[position], (position,)))
        except Problem as problem:
            errors += problem.errors
        given[position] = None
    if errors:
        raise invalid(errors)
    seen: dict[str, int] = {}
    twice = [
        FieldError(dotted((position, "name")), f"{spec.name!r} stands in the list twice, first as [{seen[spec.name]}]")
        for position, spec in enumerate(specs)
        if seen.setdefault(spec.name, position) != position
    ]
    if twice:
        raise invalid(twice)
    return specs


async def _kind_errors(call: Call, specs: Sequence[Checked], place: Callable[[int], Path]) -> list[FieldError]:
    by_kind: dict[str, list[int]] = {}
    for position, spec in enumerate(specs):
        by_kind.setdefault(spec.kind, []).append(position)
    if not by_kind.keys() <= offered_kinds(call.state):
        await call.catch_up()
    known = offered_kinds(call.state)
    if not known:
        raise Problem("not-ready", "no member has joined yet, so no kind of task is offered: try again in a moment")
    errors: list[FieldError] = []
    for kind, positions in by_kind.items():
        if kind not in known:
            message = _unknown_kind(kind, known, kind in call.node.kinds.names())
            errors += [FieldError(dotted((*place(position), "kind")), message) for position in positions[:MAX_ERRORS]]
            continue
        found = await check_params(call, kind, [specs[position].given for position in positions])
        for position, wrong in zip(positions, found, strict=True):
            errors += [_at(place(position), error) for error in wrong]
    return errors


def _at(place: Path, error: FieldError) -> FieldError:
    """An error within what stands at `place`, as one of the body."""
    at = dotted(place)
    return FieldError(f"{at}.{error.field}" if at and error.field else at or error.field, error.message)


def _unknown_kind(kind: str, known: frozenset[str], installed: bool) -> str:
    there_are = f"the kinds there are: {string_list(sorted(known))}"
    if installed and kind == "command":
        return f"no member offers 'command': ROTA_ALLOW_COMMAND=1 lets a member run commands; {there_are}"
    if installed:
        return f"{kind!r} is installed here, and no member offers it; {there_are}"
    return f"there is no kind {kind!r}; {there_are}"


def kept(pack: Callable[[], bytes], field: tuple[str | int, ...]) -> bytes:
    """What `pack` makes, to be kept. Raises `Problem` invalid for the field, if it holds what cannot be."""
    try:
        return pack()
    except (OverflowError, ValueError, TypeError) as error:
        raise invalid_field(dotted(field), f"holds {UNKEPT} ({error})") from None
