"""Metrics of channels and of the outside watcher: what was told, what waits, and what could not be told."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from node.notify.dead_man import PingView
from node.state.value import State


def of_channels(state: State) -> Iterable[Metric]:
    """The metrics of each channel, from the replicated state."""
    told = CounterMetricFamily("rota_notices_told", "Notices that a receiver accepted", labels=["channel"])
    failed = CounterMetricFamily("rota_messages_failed", "Tries to send a message that failed", labels=["channel"])
    lost = CounterMetricFamily(
        "rota_notices_lost",
        "Notices that were not told: given up after a day, or without room",
        labels=["channel", "why"],
    )
    waiting = GaugeMetricFamily("rota_notices_waiting", "Notices that are not told yet", labels=["channel"])
    failures = GaugeMetricFamily(
        "rota_channel_failures", "Tries to send on the channel that failed in a row", labels=["channel"]
    )
    for name, row in sorted(state.channels.items()):
        told.add_metric([name], row.told)
        failed.add_metric([name], row.failed)
        lost.add_metric([name, "given-up"], row.given_up)
        lost.add_metric([name, "no-room"], row.lost)
        waiting.add_metric([name], len(row.notices))
        failures.add_metric([name], row.tries)
    yield from (told, failed, lost, waiting, failures)


def of_watchdog(last: PingView | None) -> Iterable[Metric]:
    """Whether the outside watcher is pinged, at the leader. `last` None: nothing is pinged here."""
    if last is not None:
        accepted = int(last.withheld is None and last.error is None)
        yield GaugeMetricFamily("rota_watchdog_pinged", "Whether the last ping was sent and accepted", accepted)
