"""Task definitions in requests: validated, with the errors of all fields, and packed for the log."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from node.http.api.params_at import sample_of, template_problem
from node.http.door.problems import MAX_ERRORS, Problem, body_errors, invalid, invalid_field
from node.http.door.request_context import UNSTORABLE, RequestContext, quoted_names
from node.peer.protocol import PeerAway
from node.state.registry import Put
from node.state.value import State
from tasks.definition.field_errors import FieldError, Path, dotted
from tasks.definition.spec import NODE_LABEL, Spec
from tasks.definition.template import TemplateFault, places_of_fields
from tasks.installed_kinds import InstalledKinds, KindError

THREAD_FROM: Final = 50
"""Lists of this many specs and more are validated in another thread."""


class ParamsToCheck(NamedTuple):
    """Params, and whether their task is bound to one member.

    `other`: the params of another occurrence, of a task with a template; None: they are the same.
    """

    params: Mapping[str, Any]
    bound: bool
    other: Mapping[str, Any] | None = None


class CheckedSpec(NamedTuple):
    """A spec that is valid apart from its kind and params, which the kind checks.

    It does not keep the `Spec`, which is twenty objects: with a list of a thousand, garbage collection would be slow.
    """

    #: The name of the task.
    name: str
    #: The name of the kind.
    kind: str
    #: The params, not checked yet; with a template, those of a sample occurrence.
    params: Mapping[str, Any]
    #: The labels that a member must have.
    group: Mapping[str, str]
    #: The preferred member; None: there is none.
    pin: str | None
    #: The user of the attempts; None: the node's own.
    run_as: str | None
    #: The entry that is proposed.
    put: Put
    #: With a template, the params of another sample occurrence; None: no template.
    other: Mapping[str, Any] | None
    #: The fields of the params that become fields of parents' results, whose types are not known yet.
    untyped: tuple[str, ...]

    @property
    def to_check(self) -> ParamsToCheck:
        """The params for the kind to check."""
        return ParamsToCheck(self.params, NODE_LABEL in self.group, self.other)


async def checked_spec(context: RequestContext, name: str, given: Any) -> CheckedSpec:
    """Check the spec in `given`, and return it. A name in `given` must be the task's `name`. Raises `Problem`."""
    if not isinstance(given, dict):
        raise invalid_field("", "must be an object with a task's definition")
    if given.setdefault("name", name) != name:
        raise invalid_field("name", f"is {given['name']!r} in the body and {name!r} in the path: they must agree")
    try:
        checked = _checked(given, (), context.server.now_us())
    except Problem as problem:
        fields = [error.field for error in problem.errors]
        raise invalid([*problem.errors, *await params_errors(context, given, fields)]) from None
    errors = await _kind_errors(context, [checked], lambda _: ())
    if errors:
        raise invalid(errors)
    return checked


async def params_errors(
    context: RequestContext, given: Mapping[str, Any], known: Sequence[str]
) -> Sequence[FieldError]:
    """Return the errors in params whose definition has errors in the fields `known`, to report all errors at once."""
    kind, params, group = given.get("kind"), given.get("params", {}), given.get("group")
    if not isinstance(kind, str) or kind not in offered_kinds(context.state) or not isinstance(params, dict):
        return ()
    if any(field.startswith("params") for field in known) or given.get("template"):
        return ()
    bound = isinstance(group, dict) and NODE_LABEL in group
    try:
        [errors] = await errors_by_kind(context, kind, [ParamsToCheck(params, bound)])
    except Problem:
        return ()  # no member that can check the params answers: only the known errors are reported
    return errors


async def many_specs(context: RequestContext) -> list[CheckedSpec]:
    """Return the list of specs in the body, checked. Raises `Problem`, with fields such as `[3].retry.attempts`."""
    given = await context.json()
    if not isinstance(given, list):
        raise invalid_field("", "must be a list of task definitions (for a single one use PUT /v1/tasks/{name})")
    if not given:
        raise invalid_field("", "the list is empty")
    now_us = context.server.now_us()
    many = len(given) >= THREAD_FROM
    found, errors = await asyncio.to_thread(all_checked, given, now_us) if many else all_checked(given, now_us)
    specs, places = list(found.values()), list(found)
    errors += await _kind_errors(context, specs, lambda position: (places[position],))
    if errors:
        wrong = [(position, one) for position, one in enumerate(given) if isinstance(one, dict)]
        for position, one in wrong[:MAX_ERRORS]:
            known = [error.field.removeprefix(f"[{position}].") for error in errors]
            errors += [_at((position,), error) for error in await params_errors(context, one, known)]
        raise invalid(errors)
    return specs


async def errors_by_kind(context: RequestContext, kind: str, given: Sequence[ParamsToCheck]) -> list[list[FieldError]]:
    """Return the errors of each item of `given`, found by the kind on this member, or else on one that offers the kind.

    Raises `Problem` member-away if no member that offers it answers.
    """
    kinds = context.node.kinds
    if kind in kinds.names():
        try:
            if len(given) >= THREAD_FROM:
                return await asyncio.to_thread(_errors_of_all, kinds, kind, given)
            return _errors_of_all(kinds, kind, given)
        except KindError:
            pass  # the kind does not load here; ask a member that offers it
    having = members_offering(context.state, kind)
    for member in having:
        if member != context.node.settings.node:
            try:
                params, bound = [each.params for each in given], [each.bound for each in given]
                others = [each.other for each in given]
                return await context.server.peers.check(
                    member, kind, params, bound, context.server.limits.peer_log_s, others
                )
            except PeerAway:
                continue
    raise Problem(
        "member-away",
        f"the kind {kind!r} cannot be used on this member, so its params cannot be checked here, "
        f"and no member that offers it answers ({quoted_names(having)})",
        members=having,
    )


def _errors_of_all(kinds: InstalledKinds, kind: str, given: Sequence[ParamsToCheck]) -> list[list[FieldError]]:
    return [list(kinds.check(kind, each.params, bound=each.bound, other=each.other)) for each in given]


def members_offering(state: State, kind: str) -> list[str]:
    """Return the members that offer a kind, with the members that are up first."""
    offering = [member for member in state.members.values() if kind in member.kinds]
    return [member.id for member in sorted(offering, key=lambda member: (member.status != "up", member.id))]


def offered_kinds(state: State) -> frozenset[str]:
    """Return the kinds that members offer, whether the members are up or not."""
    return frozenset[str]().union(*(member.kinds for member in state.members.values()))


def _checked(given: Any, place: Path, now_us: int) -> CheckedSpec:
    """Check and return the spec at `place` in the body. Raises `Problem` invalid."""
    try:
        spec = Spec.model_validate(given)
    except ValidationError as error:
        raise invalid(body_errors(error, given, place)) from None
    put = Put(storable(spec.pack, (*place, "params")))
    try:
        sample = sample_of(spec, now_us)
    except TemplateFault as fault:
        raise template_problem(fault, place) from None
    return CheckedSpec(
        name=spec.name,
        kind=spec.kind,
        params=spec.params if sample is None else sample.one,
        group=spec.group,
        pin=spec.pin,
        run_as=spec.run_as,
        put=put,
        other=None if sample is None else sample.other,
        untyped=() if sample is None else tuple(dotted(("params", *path)) for path in places_of_fields(spec.params)),
    )


def all_checked(given: list[Any], now_us: int) -> tuple[dict[int, CheckedSpec], list[FieldError]]:
    """Return the valid specs of a list, by position, and the errors of the others.

    Replaces each item that has become a spec by None in the list, to save memory.
    """
    specs: dict[int, CheckedSpec] = {}
    errors: list[FieldError] = []
    seen: dict[str, int] = {}
    for position in range(len(given)):
        try:
            spec = _checked(given[position], (position,), now_us)
        except Problem as problem:
            errors += problem.errors
            continue
        given[position] = None
        specs[position] = spec
        if (first := seen.setdefault(spec.name, position)) != position:
            message = f"{spec.name!r} is in the list twice, first as [{first}]"
            errors.append(FieldError(dotted((position, "name")), message))
    return specs, errors


async def _kind_errors(
    context: RequestContext, specs: Sequence[CheckedSpec], place: Callable[[int], Path]
) -> list[FieldError]:
    by_kind: dict[str, list[int]] = {}
    for position, spec in enumerate(specs):
        by_kind.setdefault(spec.kind, []).append(position)
    if not by_kind.keys() <= offered_kinds(context.state):
        await context.catch_up()
    known = offered_kinds(context.state)
    if not known:
        raise Problem("not-ready", "no member has joined yet, so no kind of task is offered: try again in a moment")
    errors: list[FieldError] = []
    for kind, positions in by_kind.items():
        if kind not in known:
            message = _unknown_kind(kind, known, kind in context.node.kinds.names())
            errors += [FieldError(dotted((*place(position), "kind")), message) for position in positions[:MAX_ERRORS]]
            continue
        found = await errors_by_kind(context, kind, [specs[position].to_check for position in positions])
        for position, wrong in zip(positions, found, strict=True):
            typed = _typed_errors(wrong, specs[position].untyped)
            errors += [_at(place(position), error) for error in typed]
    return errors


def _typed_errors(errors: Sequence[FieldError], untyped: Sequence[str]) -> list[FieldError]:
    """Leave out errors in fields whose types are not known yet, except that a field takes only text.

    >>> _typed_errors([FieldError("params.n", "must be less"), FieldError("params.to", "is missing")], ["params.n"])
    [FieldError(field='params.to', message='is missing')]
    """
    found = []
    for error in errors:
        if error.field not in untyped:
            found.append(error)
        elif error.message.startswith("must be text"):
            found.append(FieldError(error.field, "must be text: write `| text` after the field's name"))
    return found


def _at(place: Path, error: FieldError) -> FieldError:
    """Return an error within the value at `place` as an error of the whole body."""
    at = dotted(place)
    return FieldError(f"{at}.{error.field}" if at and error.field else at or error.field, error.message)


def _unknown_kind(kind: str, known: frozenset[str], installed: bool) -> str:
    there_are = f"the offered kinds are {quoted_names(sorted(known))}"
    if installed and kind == "command":
        return f"no member offers 'command': set ROTA_ALLOW_COMMAND=1 on a member to let it run commands; {there_are}"
    if installed:
        return f"{kind!r} is installed here, but no member offers it; {there_are}"
    return f"there is no kind {kind!r}; {there_are}"


def storable(pack: Callable[[], bytes], field: tuple[str | int, ...]) -> bytes:
    """Return the bytes from `pack`. Raises `Problem` invalid for the field if it has a value that cannot be packed."""
    try:
        return pack()
    except (OverflowError, ValueError, TypeError) as error:
        raise invalid_field(dotted(field), f"holds {UNSTORABLE} ({error})") from None
