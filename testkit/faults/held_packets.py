"""Holds the packets of a network namespace, and delivers them later: late, and where the times differ in disorder.

    python -m testkit.faults.held_packets QUEUE LEAST_S MOST_S

netfilter hands each packet that a NFQUEUE rule names to this process, over netlink, and does with it as it is told
(linux/netfilter/nfnetlink_queue.h). Only the packets' numbers come here; they themselves stay in the kernel. Says
"ready" when it listens. When its standard input ends it delivers at once what it still holds, in the order in which
it was sent, and ends.
"""

import heapq
import random
import select
import socket
import struct
import sys
import time
from typing import Final

NETLINK_NETFILTER: Final = 12
SUBSYS_QUEUE: Final = 3
MSG_PACKET, MSG_VERDICT, MSG_CONFIG = 0, 1, 2
REQUEST, ACK = 1, 4
CFG_CMD, CFG_PARAMS, CFG_MAXLEN = 1, 2, 3
CMD_BIND: Final = 1
COPY_META: Final = 1
PACKET_HDR: Final = 1
VERDICT_HDR: Final = 2
ACCEPT: Final = 1
HELD_MAX: Final = 65_536
HEADER_BYTES: Final = 20
"""nlmsghdr (16) and nfgenmsg (4)."""


def message(kind: int, queue: int, flags: int, *attributes: tuple[int, bytes]) -> bytes:
    """One netlink message to the queue."""
    body = b"".join(
        struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4) for number, value in attributes
    )
    header = struct.pack("=IHHII", HEADER_BYTES + len(body), SUBSYS_QUEUE << 8 | kind, REQUEST | flags, 0, 0)
    return header + struct.pack("!BBH", socket.AF_UNSPEC, 0, queue) + body


def packet_ids(datagram: bytes) -> list[int]:
    """The numbers of the packets that a datagram from the kernel announces."""
    found = []
    while len(datagram) >= HEADER_BYTES:
        length, kind = struct.unpack_from("=IH", datagram)
        if kind == SUBSYS_QUEUE << 8 | MSG_PACKET:
            at = HEADER_BYTES
            while at + 4 <= length:
                size, number = struct.unpack_from("=HH", datagram, at)
                if number & 0x7FFF == PACKET_HDR:
                    found.append(struct.unpack_from("!I", datagram, at + 4)[0])
                at += size + -size % 4
        datagram = datagram[length + -length % 4 :]
    return found


def _listen(queue: int) -> socket.socket:
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    netlink.bind((0, 0))
    for attribute in (
        (CFG_CMD, struct.pack("!BBH", CMD_BIND, 0, socket.AF_INET)),
        (CFG_PARAMS, struct.pack("!IB", 0, COPY_META)),
        (CFG_MAXLEN, struct.pack("!I", HELD_MAX)),
    ):
        netlink.send(message(MSG_CONFIG, queue, ACK, attribute))
        error = struct.unpack_from("=i", netlink.recv(65_536), 16)[0]
        if error:
            raise OSError(-error, f"netfilter does not give queue {queue}")
    return netlink


def main(arguments: list[str]) -> int:
    """Hold packets until standard input ends; the exit code."""
    queue, least_s, most_s = int(arguments[0]), float(arguments[1]), float(arguments[2])
    netlink = _listen(queue)
    print("ready", flush=True)
    held: list[tuple[float, int]] = []
    while True:
        until_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable = select.select((netlink, sys.stdin), (), (), until_s)[0]
        if netlink in readable:
            for number in packet_ids(netlink.recv(65_536)):
                heapq.heappush(held, (time.monotonic() + random.uniform(least_s, most_s), number))
        over = sys.stdin in readable and netlink not in readable
        due = sorted(number for _, number in held) if over else _due(held)
        for number in due:
            netlink.send(message(MSG_VERDICT, queue, 0, (VERDICT_HDR, struct.pack("!II", ACCEPT, number))))
        if over:
            return 0


def _due(held: list[tuple[float, int]]) -> list[int]:
    """Take off what is to be delivered by now."""
    due = []
    while held and held[0][0] <= time.monotonic():
        due.append(heapq.heappop(held)[1])
    return due


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
