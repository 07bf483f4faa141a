"""All real nodes name the same owner for each of 2,000 tasks, and so does the naive implementation."""

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from hashing.view import Slot, Task
from testkit.cluster import Cluster
from tests.oracle import placement as oracle

pytestmark = pytest.mark.integration

TASKS = 2_000
SAMPLE = 25
"""For this many tasks the whole answer is compared, for each set of members that are down."""

SEED = 20_261_121
NODES = ("node-1", "node-2", "node-3")
DOWN = [down for count in range(len(NODES) + 1) for down in itertools.combinations(NODES, count)]


def spec(number: int, rng: random.Random) -> dict[str, Any]:
    """A task with some of what placement depends on."""
    made: dict[str, Any] = {"name": f"task-{number}", "kind": rng.choice(["probe", "probe", "command"])}
    if made["kind"] == "command":
        made["params"] = {"argv": ["true"]}
    if rng.random() < 0.3:
        made["weight"] = rng.choice([2, 5, 40, 1000])
    if rng.random() < 0.2:
        made["group"] = rng.choice([{"disk": "ssd"}, {"disk": "ssd", "zone": "a"}, {"zone": "b"}, {"zone": "none"}])
    if rng.random() < 0.2:
        made["pin"] = rng.choice([*NODES, "node-9"])
    if rng.random() < 0.2:
        made["key"] = f"key-{rng.randrange(30)}"
    if rng.random() < 0.3:
        made["standbys"] = rng.randrange(3)
    return made


def tasks_of(specs: Iterable[dict[str, Any]]) -> list[Task]:
    """The specs in the oracle's form."""
    return [
        Task(
            name=one["name"],
            key64=oracle.key64(one.get("key", one["name"])),
            kind=one["kind"],
            group=tuple(sorted(one.get("group", {}).items())),
            pin=one.get("pin"),
            incumbent=None,
            weight=one.get("weight", 1),
            standbys=one.get("standbys", 0),
        )
        for one in specs
    ]


def slots_of(cluster: Cluster, down: Iterable[str]) -> list[Slot]:
    """The members in the oracle's form, with these down."""
    return [
        Slot(
            member["id"],
            "down" if member["id"] in down else member["status"],
            tuple(sorted(member["labels"].items())),
            member["capacity"],
            frozenset(member["kinds"]),
        )
        for member in cluster.get("/v1/members")["items"]
    ]


@pytest.fixture(scope="module")
def specs() -> list[dict[str, Any]]:
    """The tasks, drawn with a fixed seed."""
    rng = random.Random(SEED)
    return [spec(number, rng) for number in range(TASKS)]


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory, specs: list[dict[str, Any]]) -> Iterator[Cluster]:
    """Three members that differ in capacity, labels and kinds, and all the tasks."""
    env_of = {
        "node-1": {"ROTA_LABELS": "disk=ssd,zone=a", "ROTA_CAPACITY": "3"},
        "node-2": {"ROTA_LABELS": "disk=ssd,zone=b", "ROTA_CAPACITY": "2"},
        "node-3": {"ROTA_LABELS": "zone=b", "ROTA_CAPACITY": "4", "ROTA_ALLOW_COMMAND": "0"},
    }
    with Cluster(tmp_path_factory.mktemp("cluster"), env_of=env_of) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        for start, node in zip(range(0, TASKS, 500), itertools.cycle(NODES), strict=False):
            reply = cluster.ask("POST", "/v1/tasks", node, json=specs[start : start + 500])
            assert reply.status == 200, reply.body
        yield cluster


def owners(cluster: Cluster, node: str) -> dict[str, str | None]:
    """The owner of each task, from a member's answer."""
    cluster.get("/v1/settings", node, consistent="true")
    return {task["name"]: task["owner"] for task in cluster.client_of(node).items("/v1/tasks")}


def were_down(cluster: Cluster, node: str, now: dict[str, str | None], down: Iterable[str]) -> dict[str, str | None]:
    """The owner of each task if these members were down, from a member's plan."""
    moves = cluster.client_of(node).get("/v1/plan", without=",".join(down))["moves"] if down else []
    assert all(now[move["task"]] == move["from"] for move in moves)
    return {**now, **{move["task"]: move["to"] for move in moves}}


@pytest.mark.parametrize("slack", [0, 0.25, None])
def test_all_members_give_the_owners_of_the_naive_implementation(
    placed: Cluster, specs: list[dict[str, Any]], slack: float | None
) -> None:
    """For each set of members that are down."""
    assert placed.ask("PATCH", "/v1/settings", json={"balance_slack": slack}).status == 200
    tasks = tasks_of(specs)
    milli = None if slack is None else round(slack * 1000)
    sample = random.Random(SEED).sample(range(TASKS), SAMPLE)
    now = {node: owners(placed, node) for node in NODES}
    for down in DOWN:
        slots = slots_of(placed, down)
        places = oracle.owners(slots, tasks, milli)
        expected = {
            task.name: None if place is None else slots[place].member for task, place in zip(tasks, places, strict=True)
        }
        for node in NODES:
            assert were_down(placed, node, now[node], down) == expected, f"{node} without {down}"
        for number, node in zip(sample, itertools.cycle(NODES), strict=False):
            _compare(placed, node, down, slots, tasks[number], places[number])


def _compare(
    cluster: Cluster, node: str, down: tuple[str, ...], slots: list[Slot], task: Task, place: int | None
) -> None:
    """The whole answer to where a task runs."""
    told = cluster.get(f"/v1/tasks/{task.name}/owner", node, without=",".join(down) or None)
    names = [slot.member for slot in slots]
    assert told["owner"] == (None if place is None else names[place])
    assert told["preference"] == [names[each] for each in oracle.preference(slots, task)]
    assert told["standbys"] == [names[each] for each in oracle.standbys(slots, task, place)]
    because = [(step["node"], step["verdict"]) for step in told["because"]]
    assert because == oracle.because(slots, task, place)


def test_all_survivors_give_the_owners_once_a_member_is_really_down(
    placed: Cluster, specs: list[dict[str, Any]]
) -> None:
    """The answers to ?without= come true, and a member that returns owns the same tasks as before."""
    assert placed.ask("PATCH", "/v1/settings", json={"balance_slack": 0}).status == 200
    lost = placed.wait_for_leader()
    survivors = placed.others(lost)
    before = owners(placed, survivors[0])
    foretold = were_down(placed, survivors[0], before, (lost,))
    placed.kill(lost)
    for node in survivors:
        placed.wait_for_status(lost, "down", node=node)
        assert owners(placed, node) == foretold
    assert lost not in foretold.values()
    slots = slots_of(placed, ())
    places = oracle.owners(slots, tasks_of(specs), 0)
    assert list(foretold) == sorted(foretold)
    assert foretold == {
        one["name"]: None if place is None else slots[place].member for one, place in zip(specs, places, strict=True)
    }
    placed.restart(lost)
    placed.wait_until_whole()
    for node in NODES:
        assert owners(placed, node) == before
