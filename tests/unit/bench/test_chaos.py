"""The parts of chaos that are values: the records, the deck, the times of recovery, the table, the packets' numbers."""

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

from bench.chaos.asking import leftovers
from bench.chaos.deck import CARDS, Deck
from bench.chaos.faults.machines import damage
from bench.chaos.layout import SILENT, Span, conditions, hand_overs, leaderships, packed
from bench.chaos.observer import Sight
from bench.chaos.records import Attempt, Records
from bench.chaos.recovery import Recovery, Struck, recoveries
from bench.chaos.table import table
from node.cli.local import wait_for
from testkit.faults import held_packets as held

NAMES = tuple(f"node-{number}" for number in range(1, 6))
ALL = ("spaces", "clocks", "small disk")


def test_records_are_read_as_they_grow(tmp_path: Path) -> None:
    record = tmp_path / "a"
    record.write_text(
        "a~1 1 node-1 2026-11-21T06:00:00+00:00 10.5 begin 3\na~1 1 node-1 2026-11-21T06:00:00+00:00 10.6 be"
    )
    records = Records()
    records.read(tmp_path)
    assert records.lines == 1
    with record.open("a") as file:
        file.write("at 3\na~1 2 node-2 - 11.5 begin 3\n")
    records.read(tmp_path)
    first, second = records.attempts.values()
    assert (first.node, first.first, first.last, first.begun_s, first.last_s, first.begin) == (
        "node-1",
        0,
        1,
        10.5,
        10.6,
        3,
    )
    assert (second.node, second.token, second.fire_at, second.first) == ("node-2", 2, None, 2)
    assert first.fire_at is not None


def test_a_seed_deals_the_same_faults_whatever_came_before() -> None:
    one, other = Deck(7, ALL), Deck(7, ALL)
    said = [[each.fault.said for each in one.deal(number, NAMES, "node-2")] for number in range(60)]
    assert said[40:] == [[each.fault.said for each in other.deal(number, NAMES, "node-2")] for number in range(40, 60)]
    assert said != [[each.fault.said for each in Deck(8, ALL).deal(number, NAMES, "node-2")] for number in range(60)]


def test_every_kind_comes_before_one_comes_again() -> None:
    deck = Deck(3, ALL)
    kinds = {deck.deal(number, NAMES, "node-1")[0].fault.kind for number in range(len(CARDS))}
    assert len(kinds) == len(CARDS)


def test_two_at_once_strike_different_nodes_and_a_majority_is_left_to_itself() -> None:
    deck = Deck(4, ALL)
    dealt = [deck.deal(number, NAMES, "node-3") for number in range(300)]
    pairs = [faults for faults in dealt if len(faults) == 2]
    assert len(pairs) > 30
    for first, second in pairs:
        assert not set(first.fault.victims) & set(second.fault.victims)
        assert len({*first.fault.victims, *second.fault.victims}) == 2


def test_without_namespaces_nothing_is_dealt_that_wants_them() -> None:
    assert {card.needs for card in Deck(1, ()).cards} == {""}
    assert [card.draw.__name__ for card in Deck(1, ALL, only=["freeze"]).cards] == ["freeze"]


def attempt(run: str, token: int, node: str, begun_s: float, last_s: float, *, ended: bool = False) -> Attempt:
    return Attempt("a", run, token, node, None, 0, 0, begun_s, last_s, ended=ended)


def test_recovery_is_timed_from_the_strike_and_from_the_mending() -> None:
    struck = Struck(1, "kill", "kill node-1", ("node-1",), 10.0, 14.0, 17.0)
    attempts = [
        attempt("a~1", 1, "node-1", 5.0, 10.0),
        attempt("a~2", 2, "node-1", 6.0, 9.0, ended=True),
        attempt("a~3", 3, "node-1", 11.0, 12.0),
        attempt("a~4", 4, "node-2", 10.5, 11.0, ended=True),
        attempt("a~1", 5, "node-2", 10.75, 20.0, ended=True),
    ]
    found = recoveries([struck], attempts, 5)["kill"]
    assert found == Recovery(1, 0, [3.0], [7.0], [0.5], [0.75])


def test_faults_that_struck_together_are_counted_and_not_timed() -> None:
    both = [Struck(1, kind, kind, ("node-1",), 10.0, 14.0, 17.0) for kind in ("kill", "cut")]
    assert {kind: (each.alone, each.in_company) for kind, each in recoveries(both, [], 5).items()} == {
        "cut": (0, 1),
        "kill": (0, 1),
    }


def test_the_table_has_a_row_for_each_kind_and_one_for_all() -> None:
    rows = table({"cut": Recovery(2, 1, [1.0, 3.0], [4.0, 8.0], [0.5], []), "kill": Recovery(1, 0, [9.0])}).splitlines()
    assert [cell.strip() for cell in rows[2].split("|")[1:-1]] == [
        "cut",
        "2",
        "1",
        "2.0 / 3.0",
        "6.0 / 8.0",
        "0.5 / 0.5",
        "-",
    ]
    assert [cell.strip() for cell in rows[-1].split("|")[1:5]] == ["all", "3", "1", "3.0 / 9.0"]


def test_packets_numbers_are_read_from_what_the_kernel_sends() -> None:
    header = (held.PACKET_HDR, struct.pack("!IHB", 77, 0x0800, 1))
    other = (9, b"mark")
    one = held.message(held.MSG_PACKET, 7, 0, other, header)
    another = held.message(held.MSG_PACKET, 7, 0, (held.PACKET_HDR, struct.pack("!IHB", 78, 0x0800, 1)))
    verdict = held.message(held.MSG_VERDICT, 7, 0, (held.VERDICT_HDR, struct.pack("!II", 1, 79)))
    assert held.packet_ids(one + verdict + another) == [77, 78]


@pytest.mark.parametrize("seed", range(12))
def test_damage_changes_a_file(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "journal"
    file.write_bytes(b"x" * 10_000)
    damage(file, random.Random(seed))
    assert file.read_bytes() != b"x" * 10_000
    assert file.stat().st_size <= 10_000


def sight(at_s: float, node: str, leader: str | None = "node-1", **statuses: str) -> Sight:
    return Sight(
        at_s, node, leader is not None, leader, 1, True, {name.replace("_", "-"): it for name, it in statuses.items()}
    )


def test_the_picture_shows_what_a_leader_says_of_a_member_and_when_it_does_not_answer() -> None:
    sights = {
        "node-1": [sight(1, "node-1", node_2="up"), sight(2, "node-1", node_2="down"), sight(3, "node-1", node_2="up")],
        "node-2": [sight(1, "node-2"), sight(1.5, "node-2", None), sight(2.5, "node-2")],
    }
    assert conditions("node-2", sights) == [
        Span(1, 2, "up"),
        Span(2, 3, "down"),
        Span(3, 3, "up"),
        Span(1.5, 2.5, SILENT),
    ]
    assert leaderships(sights) == {"node-1": [Span(1, 3, "leads")], "node-2": []}


def test_runs_side_by_side_are_in_rows_of_their_own() -> None:
    attempts = [attempt("a~1", 1, "node-1", 0, 5), attempt("a~2", 2, "node-1", 1, 2), attempt("a~3", 3, "node-1", 3, 4)]
    assert [bar.row for bar in packed(attempts)] == [0, 1, 1]


def test_a_run_that_went_on_elsewhere_is_joined_up() -> None:
    attempts = [
        attempt("a~1", 1, "node-1", 0, 5),
        attempt("a~1", 2, "node-2", 6, 7),
        attempt("a~1", 3, "node-2", 8, 9),
    ]
    assert hand_overs(attempts) == [(attempts[0], attempts[1])]


def test_a_process_that_was_left_behind_is_found(tmp_path: Path) -> None:
    assert leftovers(tmp_path) == []
    left = subprocess.Popen(["sleep", "60"], env={**os.environ, "NURSERY_OF": str(tmp_path / "node-1")})
    try:
        # Until the new program is in place, the process still has our environment.
        [found] = wait_for("it is found", lambda: leftovers(tmp_path))
        assert found.startswith(f"process {left.pid} was left behind: sleep 60")
    finally:
        left.kill()
        left.wait()
