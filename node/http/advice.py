"""What a client is told of a definition that is right, and that no member can run as things are (pure).

It is not refused for that: the member may be about to join, or to be given its labels; what one node would refuse,
another may allow.
"""

from collections.abc import Iterable, Mapping

from node.state.value import Member


def warnings(kind: str, group: Mapping[str, str], pin: str | None, members: Iterable[Member]) -> list[str]:
    """A sentence for each reason why the task would wait for a member that is not there.

    Whether a member is up does not count: it may come back.
    """
    there = list(members)
    found: list[str] = []
    if pin is not None and pin not in {member.id for member in there}:
        found.append(f"pin: {pin} is not a member ({_names(there)} are); the task runs elsewhere until it is")
    able = [member for member in there if set(group.items()) <= set(member.labels)]
    if group and not able:
        found.append(f"group: {_lacking(group, there)}; the task waits until a member has it")
    elif able and not any(kind in member.kinds for member in able):
        found.append(
            f"group: no member with {_labels(group)} offers the kind {kind} ({_names(able)} do not); the task waits"
        )
    return found


def may_run(kind: str, group: Mapping[str, str], member: Member | None) -> bool:
    """Whether a task of that kind and group may come to run on a member."""
    return member is not None and kind in member.kinds and set(group.items()) <= set(member.labels)


def _lacking(group: Mapping[str, str], members: list[Member]) -> str:
    borne = {label for member in members for label in member.labels}
    absent = [(name, value) for name, value in sorted(group.items()) if (name, value) not in borne]
    if not absent:
        return f"no member has all of the labels {_labels(group)}"
    told = []
    for name, value in absent:
        others = sorted({one for label, one in borne if label == name})
        told.append(f"{name}={value}" + (f" ({name} is {' or '.join(others)} here)" if others else ""))
    return f"no member has the label {', '.join(told)}"


def _labels(group: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(group.items()))


def _names(members: list[Member]) -> str:
    return ", ".join(sorted(member.id for member in members))
