"""A process with only a Heartbeat in it: views come in on standard input, findings go out, as JSON lines.

Started as `python -m tests.integration.heartbeat_process NAME SECRET CLUSTER`. Its first line says which port it has. A
line `{"t": ..., "is": "lease" | "verdict" | "failure", ...}` bears the time of CLOCK_BOOTTIME.
"""

import json
import os
import sys
from dataclasses import asdict
from itertools import count

from node.identity.cluster_id import ClusterId
from node.liveness.detector import LivenessVerdict
from node.liveness.heartbeat import Heartbeat
from node.liveness.lease import LeaseNow
from node.liveness.view import Peer, View
from node.runtime.boottime import boottime_s
from node.state.value import Settings


def _tell(what: str, fields: dict[str, object]) -> None:
    line = json.dumps({"t": boottime_s(), "is": what} | fields) + "\n"
    os.write(1, line.encode())


def _lease(lease: LeaseNow) -> None:
    _tell("lease", asdict(lease))


def _verdict(verdict: LivenessVerdict) -> None:
    _tell("verdict", asdict(verdict))


def main() -> None:
    """Runs until standard input ends."""
    me, secret, cluster = sys.argv[1:4]
    heartbeat = Heartbeat(
        me,
        "127.0.0.1",
        0,
        secret,
        _lease,
        _verdict,
        lambda error: _tell("failure", {"why": repr(error)}),
        count(1).__next__,
        ClusterId(cluster),
    )
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
