"""A process with only a Heartbeat in it: views come in on standard input, findings go out, as JSON lines.

Started as `python -m testkit.raft.heartbeat_process NAME SECRET CLUSTER`. Its first line says which port it has. A
line `{"t": ..., "is": "lease" | "verdict" | "failure", ...}` bears the time of CLOCK_BOOTTIME.
"""

import json
import os
import sys
from dataclasses import asdict
from itertools import count

from node.identity.cluster_id import ClusterId
from node.liveness.detector import LivenessVerdict
from node.liveness.heartbeat import Heartbeat, HeartbeatSettings
from node.liveness.lease import LeaseNow
from node.liveness.view import Peer, View
from node.liveness.wall_clock import machine_us
from node.runtime.boottime import boottime_s
from node.state.value import Settings


def _tell(what: str, fields: dict[str, object]) -> None:
    line = json.dumps({"t": boottime_s(), "is": what} | fields) + "\n"
    os.write(1, line.encode())


class Owner:
    """Prints what it hears."""

    def __init__(self) -> None:
        self.raft_turns = count(1).__next__
        self.wall_us = machine_us

    def on_lease(self, lease: LeaseNow) -> None:
        """A lease."""
        _tell("lease", asdict(lease))

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """A verdict."""
        _tell("verdict", asdict(verdict))

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """An agreed clock."""

    def on_failure(self, error: BaseException) -> None:
        """The end."""
        _tell("failure", {"why": repr(error)})


def main() -> None:
    """Runs until standard input ends."""
    me, secret, cluster = sys.argv[1:4]
    heartbeat = Heartbeat(HeartbeatSettings(me, "127.0.0.1", 0, secret), Owner(), ClusterId(cluster))
    _tell("port", {"port": heartbeat.port})
    heartbeat.start()
    for line in sys.stdin:
        told = json.loads(line)
        peers = {name: Peer(*peer) for name, peer in told.pop("peers").items()}
        heartbeat.observe(View(me=me, peers=peers, settings=Settings(**told.pop("settings")), **told))
    heartbeat.stop()
    _tell("stopped", {})


if __name__ == "__main__":
    main()
