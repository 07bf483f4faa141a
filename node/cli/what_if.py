"""The command `rota what-if`: which tasks would move, and which no node could run, without some nodes."""

from typing import Any, Final

import click

from node.cli.api import Api, api_command
from node.cli.text import say
from node.runtime.durations import seconds

SHOWN: Final = 50
"""At most this many rows of a list are printed; `--json` prints up to 10,000."""


@click.command("what-if")
@click.option("--without", multiple=True, metavar="NODE", help="As if this node were down.")
@click.option("--back", multiple=True, metavar="NODE", help="As if this node, drained or down now, were up.")
@click.option("--hours", type=click.IntRange(1, 168), default=24, show_default=True, help="How far ahead to look.")
@api_command
def what_if_command(api: Api, without: tuple[str, ...], back: tuple[str, ...], hours: int) -> None:
    """Show which tasks would move, which runs go on elsewhere, and which tasks no node could run, without these nodes.

    Nothing is changed.
    """
    asked = {"without": ",".join(without) or None, "back": ",".join(back) or None}
    answer = api.client.get(
        "/v1/placement/what-if", **asked, ahead_s=hours * 3600, limit=10_000 if api.as_json else SHOWN
    )
    api.show(answer, lambda: _print(api, answer, hours))


def _print(api: Api, answer: dict[str, Any], hours: int) -> None:
    say(majority_sentence(answer["majority"]))
    for title, part, headings, cells in (
        ("Tasks that move", "moves", ("TASK", "FROM", "TO"), ("task", "from", "to")),
        ("Runs that go on elsewhere", "interrupted", ("RUN", "FROM", "TO"), ("run_id", "from", "to")),
        ("Tasks that nobody could run", "unowned", ("TASK", "WHY"), ("task", "detail")),
    ):
        found = answer[part]
        say(f"\n{title}: {found['count']}")
        if found["items"]:
            api.table(headings, ([item[cell] for cell in cells] for item in found["items"]), "")
        if found["count"] > len(found["items"]):
            say(f"and {found['count'] - len(found['items'])} more")
    if room := answer.get("room"):  # older nodes do not send it
        say(f"\n{room_sentence(room)}")
    held = answer["ahead"].get("held")  # older nodes do not send it
    said = f" ({held} of these in a blackout: they begin at its end, or are missed)" if held else ""
    say(f"\nDue within {hours} h{said}, and load by weights:")
    ahead = answer["ahead"]["members"]
    api.table(
        ("NODE", "DUE", "OF THESE MOVED", "LOAD NOW", "THEN"),
        (
            (node, ahead[node]["count"], sum(ahead[node]["moved"]), load["now"], load["then"])
            if node in ahead
            else (node, 0, 0, load["now"], load["then"])
            for node, load in answer["load"].items()
        ),
        "no members",
    )


def room_sentence(room: dict[str, Any]) -> str:
    """Say how many of the occurrences of the next hour have room at once, and what the others wait for.

    >>> room = {"due": 7, "at_once": 4, "no_place": 1, "no_pool": {"dumps": 2}, "behind": 0, "held": 0, "unowned": 0}
    >>> room_sentence({**room, "uncounted": 0, "longest_wait_s": 120.0})
    'Of 7 due within the next hour 4 have room at once, 1 waits for a place, 2 wait for the pool dumps (2 min at most).'
    >>> room_sentence({**room, "due": 0})
    'Nothing is due within the next hour.'
    """
    if not room["due"]:
        return "Nothing is due within the next hour."
    waits = [(room["no_place"], "a place"), *((number, f"the pool {name}") for name, number in room["no_pool"].items())]
    said = [f"{number} {'waits' if number == 1 else 'wait'} for {what}" for number, what in waits if number]
    if said:
        said[-1] += f" ({seconds(room['longest_wait_s'])} at most)"
    others = (
        (room["behind"], "would begin while the run before works (overlap)"),
        (room["held"], "is held by a blackout" if room["held"] == 1 else "are held by a blackout"),
        (room["unowned"], "can be begun by nobody"),
        (room["uncounted"], "more were not looked at"),
    )
    said += [f"{number} {what}" for number, what in others if number]
    has = "has" if room["at_once"] == 1 else "have"
    return ", ".join([f"Of {room['due']} due within the next hour {room['at_once']} {has} room at once", *said]) + "."


def majority_sentence(majority: dict[str, Any]) -> str:
    """Say whether a majority would be left.

    >>> majority_sentence({"members": 3, "needed": 2, "now": 3, "then": 1, "left": False})
    'NO MAJORITY would be left: 1 of 3 members up, 2 needed. Nothing would be claimed or changed.'
    """
    votes = f"{majority['then']} of {majority['members']} members up, {majority['needed']} needed"
    if majority["left"]:
        return f"A majority would be left: {votes}."
    return f"NO MAJORITY would be left: {votes}. Nothing would be claimed or changed."
