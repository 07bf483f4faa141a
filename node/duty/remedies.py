"""What to do about each thing that holds a task, in words."""

from collections.abc import Mapping
from typing import Final

REMEDIES: Final[Mapping[str, str]] = {
    "no_quorum": "start the members that are down, or mend the network between them (rota members)",
    "running": "follow it with: rota log -f {run}",
    "disabled": "set that in its definition, and apply it (rota apply)",
    "paused": "resume it with: rota resume {task}",
    "unreadable": "install a newer tzdata on {member} and restart it, or change the time zone of the task",
    "over": "give it another schedule, or run it with: rota run {task}",
    "no_owner": "ask again in a moment",
    "no_label": "give a member the label (ROTA_LABELS) and restart it, or change the group of the task",
    "no_kind": "install or allow the kind on one of them, and restart it",
    "members_down": "start one of them",
    "members_draining": "undrain one of them (rota undrain NODE), or mend what it names",
    "by_hand": "run it so, or give it a schedule",
    "not_due": "to have it earlier, run it with: rota run {task}",
    "behind": "wait for the end of the other run, or cancel that with: rota cancel {ahead}",
    "backing_off": "wait, or mend what its log shows: rota log {run}",
    "owner_away": "wait: if {member} is lost, another member takes over within seconds; otherwise see its log",
    "stopping": "wait: the next owner takes over as soon as {member} is down",
    "no_lease": "see that {member} and the leader reach each other's heartbeat port, and what the log of {member} says",
    "aside": "mend that on {member}: it takes on work again by itself",
    "undecided": "report it, with the log of {member}",
    "bound": "wait for the end of one, cancel one (rota cancel RUN), or raise that setting on {member}",
    "max_runs": "wait for the end of one, cancel one (rota cancel RUN), or raise ROTA_MAX_RUNS on {member}",
    "secret": "put the file into the ROTA_SECRETS_DIR of {member}; for a variable, set it and restart {member}",
    "waits": "wait until {member} has room",
    "due": "wait a moment",
}
"""What to do, by code. {task}, {run}, {ahead} (the run that it waits for) and {member} are filled in."""


def remedy(code: str, **names: str | None) -> str:
    """What to do about `code`; a code of a later version has no remedy here.

    >>> remedy("paused", task="nightly")
    'resume it with: rota resume nightly'
    """
    known = {name: value or name.upper() for name, value in names.items()}
    return REMEDIES.get(code, "see the log of {member}").format_map({"member": "the member", **known})
