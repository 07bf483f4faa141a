"""The process that sends one message by Apprise: `python -m node.notify.apprise_process`, with the order on stdin.

It is a process of its own because Apprise's many plugins block. Whatever the URL says, and after a redirect too, it
connects only to destinations that the node allows, and it starts no programs. It ends by itself after `SEND_S`.
"""

import json
import logging
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

from tasks.access import Access, AccessRefused, check_address

SEND_S: Final = 25
SAID_CHARS_MAX: Final = 300
MEMORY_BYTES_MAX: Final = 512 * 1024 * 1024
"""The limit of the process's address space. It usually takes less than half of that, and a tenth in memory."""
LARGE_BYTES: Final = MEMORY_BYTES_MAX // 4

_PROGRAMS: Final = "subprocess.Popen os.exec os.fork os.forkpty os.posix_spawn os.spawn os.system pty.spawn"
_REFUSED: Final = frozenset((*_PROGRAMS.split(), "syslog.openlog", "syslog.syslog"))
_CONNECTING: Final = frozenset({"socket.connect", "socket.sendto"})


class _Said(logging.Handler):
    """Keeps Apprise's log lines, because they give the reason why a message was not accepted."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(" ".join(record.getMessage().split()))


class _Gate:
    """Lets connections through to destinations that the node allows, and refuses all others."""

    def __init__(self, access: dict[str, Any]) -> None:
        self._access = Access.unpacked(access)
        self._resolve = socket.getaddrinfo
        self._allowed: set[str] = set()
        self.refused: list[str] = []

    def close(self) -> None:
        """Check all connections of this process from now on."""
        socket.getaddrinfo = self.getaddrinfo
        sys.addaudithook(self.audit)

    def getaddrinfo(self, host: Any, port: Any, *more: Any, **named: Any) -> Any:
        """Resolve a host name if it is allowed; in place of `socket.getaddrinfo`."""
        text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
        self._check(text, port)
        found = self._resolve(host, port, *more, **named)
        self._allowed.update(str(each[4][0]) for each in found)
        return found

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook: refuses to start programs, to write to this machine's logs, and to connect to other hosts."""
        if event in _REFUSED:
            raise PermissionError("a channel starts no programs, and writes in no log of this machine")
        if event in _CONNECTING:
            address = arguments[1]
            if not isinstance(address, tuple):
                raise PermissionError("a channel uses no sockets of this machine")
            if str(address[0]) not in self._allowed:
                self._check(str(address[0]), address[1])

    def _check(self, host: str, port: Any) -> None:
        shown = f"[{host.lower()}]" if ":" in host else host.lower()
        try:
            check_address(self._access, "destination", f"{shown}:{port}" if port else shown, "the channel's url")
        except AccessRefused as error:
            self.refused.append(str(error))
            raise PermissionError(str(error)) from None


def main() -> None:
    """Read an order from stdin, send its message, and write the outcome to stdout as JSON."""
    signal.alarm(SEND_S)
    # Limit the memory, because plugins read whole answers, and a receiver must not fill the memory of this machine.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    order = json.loads(sys.stdin.read())
    # A plugin may print to stdout too: send that to stderr, so that only the outcome is on stdout.
    outcome, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    accepted, said = _send(order)
    json.dump({"accepted": accepted, "said": said[:SAID_CHARS_MAX]}, outcome)
    outcome.close()


def _send(order: dict[str, Any]) -> tuple[bool, str]:
    try:
        import apprise  # an optional dependency, and slow to import
    except ImportError:
        return False, "Apprise is not installed there: pip install 'rota[notify]', and restart the node"
    said, log = _Said(), logging.getLogger("apprise")
    log.addHandler(said)
    gate = _Gate(order["access"])
    channel = apprise.Apprise(asset=apprise.AppriseAsset(app_id="Rota", app_desc="Rota", secure_logging=True))
    if not channel.add(order["url"]):
        return False, "the secret for the channel's url is not a URL that Apprise knows"
    gate.close()
    kind = {"info": "info", "warning": "warning"}.get(order["severity"], "failure")
    # Send plain text. As HTML, the lines would run together, and markup in an error message would be rendered.
    result = channel.notify(
        body=order["text"],
        title=order["title"],
        notify_type=apprise.NotifyType(kind),
        body_format=apprise.NotifyFormat.TEXT,
    )
    if result:
        return True, "accepted"
    if not gate.refused and _memory_bytes() > LARGE_BYTES:  # Apprise hides an error for lack of memory
        return False, "the receiver's answer is too large"
    return False, (gate.refused or said.lines or ["it was not accepted, for a reason that Apprise does not say"])[-1]


def _memory_bytes() -> int:
    """Return the peak memory of this program. (`ru_maxrss` would include that of the process that started it.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
