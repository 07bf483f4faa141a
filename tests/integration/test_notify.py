"""Three nodes and a receiver: what is told, by whom, and what happens when the sender dies."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.command import Rota
from testkit.servers.outside_watcher import outside_watcher
from testkit.servers.webhook_receiver import SECRET, Fault, WebhookReceiver, webhook_receiver

pytestmark = [pytest.mark.integration, pytest.mark.more]

FAILING: dict[str, Any] = {"params": {"argv": ["sh", "-c", "echo broken >&2; exit 3"]}, "retry": {"attempts": 1}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        (made.secrets_dir / "hook-key").write_text(SECRET)
        made.start()
        made.wait_until_whole()
        yield made
        made.check()


@pytest.fixture
def receiver(cluster: Cluster) -> Iterator[WebhookReceiver]:
    """A receiver, and the channel `ops` to it; afterwards all nodes run again, and the channel is gone."""
    with webhook_receiver() as made:
        make(cluster, made)
        yield made
        cluster.mend()
        cluster.ask("DELETE", "/v1/channels/ops")
        assert made.wrong == []


def make(cluster: Cluster, receiver: WebhookReceiver, **fields: Any) -> None:
    channel = {"kind": "webhook", "url": receiver.url, "secret": {"secret": "hook-key"}, "group_s": 0.2}
    reply = cluster.ask("PUT", "/v1/channels/ops", json=channel | fields)
    assert reply.status in (200, 201), reply.body


def heard(receiver: WebhookReceiver, *events: str) -> list[dict[str, Any]]:
    """The notices, once there is one of each of these events."""

    def there() -> list[dict[str, Any]] | None:
        found = receiver.notices()
        return found if set(events) <= {notice["event"] for notice in found} else None

    return wait_for(f"{events} are told", there)


def fail(cluster: Cluster, name: str) -> str:
    cluster.register(name, kind="command", **FAILING)
    return str(cluster.wait_for_run(cluster.run(name))["run_id"])


def ops(cluster: Cluster) -> Any:
    return cluster.get("/v1/channels/ops")


def test_a_failure_and_the_recovery_are_told_once(cluster: Cluster, receiver: WebhookReceiver) -> None:
    run_id = fail(cluster, "nightly")
    [failed] = heard(receiver, "run_failed")
    assert (failed["task"], failed["run_id"], failed["severity"]) == ("nightly", run_id, "error")
    cluster.register("nightly", kind="command", params={"argv": ["true"]})
    cluster.wait_for_run(cluster.run("nightly"), "succeeded")
    assert [notice["event"] for notice in heard(receiver, "run_recovered")] == ["run_failed", "run_recovered"]
    wait_for("all is told", lambda: ops(cluster)["told"] == 2)
    channel = ops(cluster)
    assert (channel["waiting"], channel["last"]["error"], receiver.arrivals) == (0, None, 2)
    assert 'rota_notices_told_total{channel="ops"} 2.0' in cluster.ask("GET", "/metrics").body.decode()
    assert receiver.headers[-1]["x-rota-node"] == channel["last"]["node"] == channel["sender"]


def test_a_member_that_dies_and_comes_back_is_told(cluster: Cluster, receiver: WebhookReceiver) -> None:
    cluster.kill("node-2")
    heard(receiver, "member_down", "majority_at_risk")
    cluster.restart("node-2")
    notices = heard(receiver, "member_up", "majority_safe")
    assert {notice["member"] for notice in notices} == {"node-2", None}
    assert [one["severity"] for one in notices if one["event"] == "majority_at_risk"] == ["critical"]


def test_a_storm_is_one_message(cluster: Cluster, receiver: WebhookReceiver) -> None:
    make(cluster, receiver, group_s=3)
    names = [f"storm-{number}" for number in range(12)]
    for name in names:
        cluster.register(name, kind="command", **FAILING)
    for run_id in [cluster.run(name) for name in names]:
        cluster.wait_for_run(run_id)
    wait_for("all are told", lambda: {notice["task"] for notice in receiver.notices()} == set(names))
    assert receiver.arrivals <= 2


def test_what_is_refused_is_tried_again_by_another_member(cluster: Cluster, receiver: WebhookReceiver) -> None:
    receiver.fault = lambda number: Fault(500, text="not now") if number < 1 else None
    fail(cluster, "nightly")
    wait_for("a failure is shown", lambda: "not now" in ((ops(cluster)["last"] or {}).get("error") or ""))
    heard(receiver, "run_failed")
    assert receiver.arrivals == 2
    assert len({headers["x-rota-node"] for headers in receiver.headers}) == 2


def test_a_sender_that_is_killed_before_it_reports_leaves_it_to_the_next(
    cluster: Cluster, receiver: WebhookReceiver
) -> None:
    senders: list[str] = []

    def kill(number: int) -> None:
        senders.append(receiver.headers[number]["x-rota-node"])
        if number == 0:
            os.kill(cluster.pid(senders[0]), signal.SIGKILL)

    receiver.arrived = kill
    receiver.fault = lambda number: Fault(200, taken=True, delay_s=2) if number == 0 else None
    run_id = fail(cluster, "nightly")
    wait_for("another one has sent it", lambda: len(senders) > 1)
    assert senders[1] != senders[0]
    bodies = [json.loads(body)["notices"] for body in receiver.taken.values()]
    [key] = {one["key"] for notices in bodies for one in notices if one["run_id"] == run_id}
    assert sum(one["key"] == key for notices in bodies for one in notices) in (1, 2), "the key tells repetitions"
    heard(receiver, "member_down")


def test_a_success_is_told_once_after_its_retries(cluster: Cluster, receiver: WebhookReceiver) -> None:
    make(cluster, receiver, events=["run_failed", "run_succeeded"])
    flaky = {"argv": ["sh", "-c", "test $ROTA_ATTEMPT -ge 2"]}
    cluster.register("flaky", kind="command", params=flaky, retry={"attempts": 3, "backoff_s": 0})
    run_id = cluster.wait_for_run(cluster.run("flaky"), "succeeded")["run_id"]
    [told] = heard(receiver, "run_succeeded")
    assert (told["run_id"], told["severity"], told["text"]) == (run_id, "info", "flaky succeeded, after 2 attempts")
    fail(cluster, "nightly")
    heard(receiver, "run_failed", "run_succeeded")
    assert ops(cluster)["dropped_successes"] == 0


def test_a_digest_is_made_once_though_its_sender_is_killed_while_it_sends(cluster: Cluster) -> None:
    with webhook_receiver() as receiver:
        names = ["nightly", "report"]
        cluster.register("nightly", kind="command", labels={"team": "bi"}, **FAILING)
        cluster.register("report", kind="command", params={"argv": ["true"]}, labels={"team": "bi"})
        member, channels = cluster.others(cluster.wait_for_leader())[0], list[str]()
        soon = datetime.now(UTC) + timedelta(seconds=85)
        digest = {"at": f"{soon:%H:%M}", "by": "team", "only": True}
        channel = {"kind": "webhook", "url": receiver.url, "secret": {"secret": "hook-key"}, "digest": digest}
        for number in range(50):
            name = f"daily-{number}"
            made = cluster.ask("PUT", f"/v1/channels/{name}", json=channel | {"labels": {"team": "bi"}}).json
            if made["sender"] == member and len(channels) < 2:
                channels.append(name)
            else:
                cluster.ask("DELETE", f"/v1/channels/{name}")
        runs = [cluster.wait_for_run(cluster.run(name))["state"] for name in (*names, "report")]
        assert sorted(runs) == ["failed", "succeeded", "succeeded"]
        rota = Rota(",".join(cluster.url(name) for name in cluster.names))
        shown = rota("notify", "digest", channels[0]).out
        assert shown.startswith("Rota: 1 failed; 2 of 3 runs succeeded since ")
        assert "team bi: 3 ran, 2 succeeded, 1 failed\n  failed: nightly\n" in shown
        assert receiver.arrivals == 0

        def kill(number: int) -> None:
            if receiver.headers[number]["x-rota-node"] == member and member in cluster.running():
                os.kill(cluster.pid(member), signal.SIGKILL)

        # The first message is taken, and its sender never hears it.
        receiver.arrived, receiver.fault = kill, lambda number: Fault(200, taken=True, delay_s=0.3)
        wait_for("its sender is dead", lambda: member not in cluster.running(), 120)
        wait_for("each has its digest", lambda: all(keys(receiver, name) for name in channels))
        wait_for("nothing waits", lambda: all(told(cluster, name)["waiting"] == 0 for name in channels))
        cluster.restart(member)
        cluster.wait_until_whole()
        assert len(receiver.headers) > len(channels), "one message came again"
        for name in channels:
            assert len(set(keys(receiver, name))) == 1, "the key tells repetitions"
            assert told(cluster, name)["told"] == 1
            assert told(cluster, name)["digest_next"] > told(cluster, name)["digest_since"]
        [body, *_] = receiver.taken.values()
        [notice] = json.loads(body)["notices"]
        assert (notice["event"], notice["severity"]) == ("digest", "info")
        figures = notice["figures"]
        assert (figures["by"], figures["complete"], figures["total"]["ran"]) == ("team", True, 3)
        assert figures["groups"][0]["tasks"] == {"failed": [{"task": "nightly", "count": 1}]}
        assert receiver.wrong == []
        for name in channels:
            cluster.ask("DELETE", f"/v1/channels/{name}")
        for name in names:
            cluster.ask("DELETE", f"/v1/tasks/{name}")


def keys(receiver: WebhookReceiver, channel: str) -> list[str]:
    """The keys of the notices on a channel in all messages that arrived, repeated ones too."""
    messages = [receiver.seen.get(headers["idempotency-key"]) for headers in list(receiver.headers)]
    bodies = [json.loads(body) for body in messages if body is not None]
    return [one["key"] for body in bodies if body["channel"] == channel for one in body["notices"]]


def told(cluster: Cluster, channel: str) -> Any:
    return cluster.get(f"/v1/channels/{channel}")


def test_a_channel_without_a_digest_shows_none(cluster: Cluster, receiver: WebhookReceiver) -> None:
    refused = cluster.ask("GET", "/v1/channels/ops/digest")
    assert (refused.status, "has no digest" in refused.json["detail"]) == (409, True)
    assert ops(cluster)["digest_next"] is None
    assert cluster.ask("GET", "/v1/channels/nothing/digest").status == 404
    make(cluster, receiver, digest={"at": "07:00", "timezone": "Europe/Paris"})
    assert cluster.get("/v1/channels/ops/digest")["title"].startswith("Rota: nothing ran since 2")
    wrong = {"kind": "webhook", "url": receiver.url}
    for digest in ({"at": "7"}, {"at": "07:00", "timezone": "Mars"}, {"at": "07:00", "labels": {}}, {}, "07:00"):
        assert cluster.ask("PUT", "/v1/channels/ops", json=wrong | {"digest": digest}).status == 422
    both = wrong | {"digest": {"at": "07:00", "only": True}, "events": ["run_failed"]}
    assert "leave `events` out" in cluster.ask("PUT", "/v1/channels/ops", json=both).body.decode()


def test_a_breach_is_told_twice_only_on_the_channel_of_the_leader_that_was_killed(cluster: Cluster) -> None:
    leader = cluster.wait_for_leader()
    late: dict[str, Any] = {"kind": "command", "params": {"argv": ["true"]}, "deadlines": {"success_every_s": 1}}
    with webhook_receiver() as receiver:
        by_leader, by_another = channels_by_sender(cluster, receiver, leader)

        def kill(number: int) -> None:
            if receiver.headers[number]["x-rota-node"] == leader and leader in cluster.running():
                os.kill(cluster.pid(leader), signal.SIGKILL)

        # The message is taken, and the leader never hears it.
        receiver.arrived, receiver.fault = kill, lambda number: Fault(200, taken=True, delay_s=0.3)
        cluster.register("rare", **late)
        wait_for("the leader is dead", lambda: leader not in cluster.running())
        cluster.wait_for_leader(leader)
        wait_for("another one has told it", lambda: len(arrived(receiver, by_leader, "rare")) > 1)
        cluster.register("later", **late)
        wait_for("the next breach is told", lambda: arrived(receiver, by_leader, "later"))
        wait_for("the next breach is told there, too", lambda: arrived(receiver, by_another, "later"))
        [key] = set(arrived(receiver, by_leader, "rare"))
        assert arrived(receiver, by_leader, "rare") == [key, key]
        assert arrived(receiver, by_another, "rare") == [key]
        assert receiver.wrong == []
        for name in ("rare", "later"):
            cluster.ask("DELETE", f"/v1/tasks/{name}")
        for channel in (by_leader, by_another):
            cluster.ask("DELETE", f"/v1/channels/{channel}")
    cluster.mend()


def channels_by_sender(cluster: Cluster, receiver: WebhookReceiver, member: str) -> tuple[str, str]:
    """Two channels of breaches to the receiver: one that `member` sends on, and one that another member does."""
    channel = {"kind": "webhook", "url": receiver.url, "secret": {"secret": "hook-key"}, "group_s": 0}
    found: dict[bool, str] = {}
    for number in range(50):
        name = f"breaches-{number}"
        made = cluster.ask("PUT", f"/v1/channels/{name}", json=channel | {"events": ["deadline_breached"]}).json
        if found.setdefault(made["sender"] == member, name) != name:
            cluster.ask("DELETE", f"/v1/channels/{name}")
        if len(found) == 2:
            break
    return found[True], found[False]


def arrived(receiver: WebhookReceiver, channel: str, task: str) -> list[str]:
    """The keys of the notices about a task in all messages of a channel that arrived, repeated ones too."""
    messages = [receiver.seen.get(headers["idempotency-key"]) for headers in list(receiver.headers)]
    told = [json.loads(body) for body in messages if body is not None]
    return [one["key"] for each in told if each["channel"] == channel for one in each["notices"] if one["task"] == task]


def test_the_command_makes_tries_and_deletes_a_channel(cluster: Cluster, receiver: WebhookReceiver) -> None:
    rota = Rota(",".join(cluster.url(name) for name in cluster.names))
    assert "sent a test message on ops; the receiver answered 204" in rota("notify", "test", "ops").out
    [notice] = receiver.notices()
    assert (notice["event"], notice["severity"]) == ("test", "info")
    make(cluster, receiver, labels={"team": "bii"})
    mistyped = rota("notify", "test", "ops")
    assert (mistyped.code, "no task has the labels of ops yet" in mistyped.out) == (0, True)
    receiver.fault = lambda number: Fault(403, text="unknown hook")
    refused = rota("notify", "test", "ops")
    assert refused.code == 1
    assert "the receiver answered 403 unknown hook" in refused.err
    assert "ops" in rota("notify", "list").out
    shown = rota("notify", "show", "ops").out
    assert "kind: webhook" in shown
    made = rota("notify", "set", "copy", "-f", "-", stdin=shown)
    assert (made.code, made.out) == (0, "copy is made; try it with: rota notify test copy\n")
    assert rota("notify", "delete", "copy").code == 0
    again = rota("notify", "delete", "copy")
    assert (again.code, "there is no channel" in again.err) == (1, True)


def test_the_leader_pings_an_outside_watcher_and_stops_when_something_is_overdue(cluster: Cluster) -> None:
    with outside_watcher() as watcher:
        (cluster.secrets_dir / "watch").write_text(watcher.url)
        setting = {"watchdog": {"url": {"secret": "watch"}, "every_s": 1}}
        assert cluster.ask("PATCH", "/v1/settings", json=setting).json["watchdog"] == setting["watchdog"]
        wait_for("it is pinged", lambda: watcher.pings >= 2)
        leader = cluster.wait_for_leader()
        other = cluster.others(leader)[0]
        bound: dict[str, Any] = {"group": {"node": other}, "schedule": {"every_s": 1}}
        cluster.register("bound", kind="command", params={"argv": ["true"]}, **bound)
        cluster.kill(other)

        def why() -> str | None:
            pinged = cluster.get("/v1/cluster", leader)["watchdog"]
            return str(pinged["withheld"]) if pinged["withheld"] else None

        assert wait_for("the ping is withheld", why) == "bound is overdue"
        count = watcher.pings
        cluster.restart(other)
        wait_for("it is pinged again", lambda: watcher.pings > count)
        cluster.ask("DELETE", "/v1/tasks/bound")
        cluster.ask("PATCH", "/v1/settings", json={"watchdog": None})
        assert cluster.get("/v1/cluster")["watchdog"] is None
