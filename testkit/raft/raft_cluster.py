"""A Raft cluster of real processes on loopback, with verbs."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import IO, Any

from node.cli.local import wait_for
from node.cli.ports import HOST, free_ports, hold


class Process:
    """A member's process, and what it has written."""

    def __init__(self, me: str, settings: dict[str, Any], log: IO[str], module: str) -> None:
        self.me = me
        self.thread = 0
        self.acked: set[int] = set()
        self.role: dict[str, Any] = {}
        self.roles: list[dict[str, Any]] = []
        self.started = False
        self.failed = ""
        self._answers: dict[int, dict[str, Any]] = {}
        self._asks = count(1)
        command = [sys.executable, "-m", module, json.dumps(settings)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # cut off in the middle of a line by a kill
            self.acked.update(said.get("acked", ()))
            self.thread = said.get("thread", self.thread)
            self.started = self.started or "started" in said
            self.failed = said.get("failed", self.failed)
            if "role" in said:
                self.role = said["role"]
                self.roles.append(said["role"])
            if "answer" in said:
                self._answers[said["answer"]] = said

    def ask(self, verb: str, **arguments: Any) -> int:
        number = next(self._asks)
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps({"ask": number, "verb": verb, "arguments": arguments}) + "\n")
        self.popen.stdin.flush()
        return number

    def answer(self, number: int, deadline_s: float = 20.0) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(f"{self.me} to answer", lambda: self._answers.get(number), deadline_s)
        return found

    def do(self, verb: str, **arguments: Any) -> dict[str, Any]:
        answer = self.answer(self.ask(verb, **arguments))
        assert "error" not in answer, answer
        return answer

    def kill(self) -> None:
        self.popen.kill()
        self._ended()

    def stop(self) -> None:
        if self.popen.poll() is None:
            try:
                self.ask("stop")
                self.popen.wait(10)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.popen.kill()
        self._ended()

    def pause(self) -> None:
        self.popen.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def _ended(self) -> None:
        self.popen.wait(10)
        self._reader.join(5)
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Cluster:
    """Members n1, n2, ... Each keeps its folder and its port from one start to the next."""

    def __init__(
        self,
        folder: Path,
        members: int = 3,
        timing: dict[str, Any] | None = None,
        module: str = "testkit.raft.raft_member",
    ) -> None:
        self.folder = folder
        self.more: dict[str, Any] = {}
        self._module = module
        self.timing = timing or {}
        self.addresses = {f"n{number + 1}": (HOST, port) for number, port in enumerate(free_ports(members))}
        self._held = hold(port for _, port in self.addresses.values())
        self.running: dict[str, Process] = {}
        self._log = (folder / "members.log").open("a")

    def process(self, member: str, **settings: Any) -> Process:
        """A process of a member, started beside one that may run under its name."""
        whole = {"me": member, "addresses": self.addresses, "folder": str(self.folder / member)}
        whole |= {"secret": "between members", "timing": self.timing, **self.more, **settings}
        return Process(member, whole, self._log, self._module)

    def start(self, *members: str) -> None:
        for member in members or self.addresses:
            self.running[member] = self.process(member)
        wait_for("all to start", lambda: all(process.started for process in self.running.values()))

    def leader(self) -> Process:
        """Wait until all running members agree on the leader, and have a quorum; returns it."""

        def agreed() -> Process | None:
            roles = [process.role for process in self.running.values()]
            leaders = {role.get("leader") for role in roles if role.get("has_quorum") and role.get("ready")}
            if len(leaders) == 1 and all(role.get("has_quorum") and role.get("ready") for role in roles):
                return self.running.get(leaders.pop() or "")
            return None

        found: Process = wait_for("one leader", agreed)
        return found

    def followers(self) -> list[Process]:
        leader = self.leader()
        return [process for process in self.running.values() if process is not leader]

    def kill(self, member: str) -> None:
        self.running.pop(member).kill()

    def stop(self, *members: str) -> None:
        for member in members or list(self.running):
            self.running.pop(member).stop()

    def same(self, counted: int, members: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Wait until all have applied this many proposals: the same, in the same order. Returns their states."""
        processes = [self.running[member] for member in members or self.running]

        def states() -> list[dict[str, Any]] | None:
            found = [process.do("state") for process in processes]
            return found if all(state["count"] == counted for state in found) else None

        found: list[dict[str, Any]] = wait_for(f"all to have applied {counted}", states)
        assert len({state["digest"] for state in found}) == 1, found
        return found

    def close(self) -> None:
        for process in self.running.values():
            process.wake()
        for member in list(self.running):
            self.stop(member)
        self._log.close()
        self._held.close()
