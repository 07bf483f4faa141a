"""Kinds that behave well or badly in the ways that the execution tests need."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
from pydantic import BaseModel

from node.execution import frames, supervisor_link
from tasks.access import Access
from tasks.kind import Away, Context, Unretryable
from tasks.needs import Tool
from tasks.secret import Reference

SLEEP = [sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(3600)"]


class Anything(BaseModel):
    what: str = ""
    secret: Reference | None = None
    asked: Any = None


def wait_for_stop(ctx: Context[Any]) -> None:
    while not ctx.cancelled:
        time.sleep(0.01)


_SHIFT = bytes((byte + 1) % 256 for byte in range(256))


def shifted(text: str) -> str:
    """Another text, by which `_in_memory` finds this one without having it: each character is the next one's."""
    return text.encode().translate(_SHIFT).decode()


def _in_memory(sought: bytes) -> bool:
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            start, end = (int(part, 16) for part in place.split("-"))
            if not rights.startswith("rw") or "[v" in line:
                continue
            for at in range(start, end, 1 << 20):
                memory.seek(at)
                try:
                    piece = memory.read(min(1 << 20, end - at))
                except OSError as error:
                    assert error.errno == errno.EIO, error
                    continue  # what this search itself had, and has given back
                if sought in piece.translate(_SHIFT):
                    return True
    return False


class Act:
    """Does what `params.what` says."""

    Params = Anything

    def run(self, ctx: Context[Anything]) -> dict[str, Any] | None:
        result: dict[str, Any] | None = getattr(self, ctx.params.what)(ctx)
        return result

    def see(self, ctx: Context[Anything]) -> dict[str, Any]:
        (ctx.scratch / "here").touch()
        inherited = [name for name in os.environ if name.startswith("ROTA_")]
        return {
            "nice": os.nice(0),
            "oom": int(Path("/proc/self/oom_score_adj").read_text()),
            "cwd": str(Path.cwd() == ctx.scratch),
            "rota": inherited,
            "extra": os.environ.get("EXTRA"),
            "fire_at": ctx.fire_at.isoformat(),
            "checkpoint": ctx.checkpoint,
            "fds": len(list(Path("/proc/self/fd").iterdir())),
        }

    def finds_away(self, ctx: Context[Anything]) -> None:
        raise Away("db.internal does not answer")

    def stops(self, ctx: Context[Anything]) -> dict[str, Any]:
        wait_for_stop(ctx)
        return {"stopped": True}

    def hands_over(self, ctx: Context[Anything]) -> None:
        wait_for_stop(ctx)
        ctx.save_checkpoint({"at": 7})

    def deaf(self, ctx: Context[Anything]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        family(ctx)
        time.sleep(3600)

    def family(self, ctx: Context[Anything]) -> None:
        family(ctx)
        time.sleep(3600)

    def checkpoints(self, ctx: Context[Anything]) -> dict[str, Any]:
        ctx.save_checkpoint({"batch": (1, 2)})
        return {"checkpoint": ctx.checkpoint}

    def too_much(self, ctx: Context[Anything]) -> None:
        ctx.save_checkpoint(b"x" * 65_537)

    def counts(self, ctx: Context[Anything]) -> dict[str, Any]:
        for number in range(20_000):
            ctx.progress(number + 1, 20_000, "rows")
        return {"rows": 20_000}

    def says_on(self, ctx: Context[Anything]) -> None:
        while True:
            ctx.progress(time.monotonic())
            time.sleep(0.01)

    def tells(self, ctx: Context[Anything]) -> dict[str, Any]:
        value = ctx.secret(ctx.params.secret)
        print("print", value)
        for char in f"{value}\n":
            os.write(1, char.encode())
        ctx.log.warning("log %s", value)
        subprocess.run(["sh", "-c", f"echo child {value}"], check=True)
        return {"url": f"u:{value}@h"}

    def asks(self, ctx: Context[Anything]) -> dict[str, Any]:
        return {"length": len(ctx.secret(ctx.params.asked))}

    def asks_again(self, ctx: Context[Anything]) -> dict[str, Any]:
        before = ctx.secret("pg")
        (ctx.scratch.parents[1] / "pg").write_text("after-rotating")
        print(after := ctx.secret("pg"))
        return {"lengths": [len(before), len(after)]}

    def leaves_a_mark(self, ctx: Context[Anything]) -> None:
        (ctx.scratch.parents[1] / "mark").touch()

    def asks_in_a_flood(self, ctx: Context[Anything]) -> None:
        while True:  # where both share a core, the supervisor may answer each of the first ones before the next
            ctx._link.send(frames.SecretAskFrame("secret", "pg"))  # type: ignore[attr-defined]

    def remembers(self, ctx: Context[Anything]) -> dict[str, Any]:
        """Which texts are in this process's memory. They are given `shifted`."""
        ctx.secret("pg")
        return {"found": [_in_memory(text.encode()) for text in ctx.params.asked]}

    def raises_it(self, ctx: Context[Anything]) -> None:
        raise OSError(f"cannot log in\nwith {ctx.secret(ctx.params.secret)}")

    def keeps_it(self, ctx: Context[Anything]) -> None:
        ctx.save_checkpoint({"password": ctx.secret(ctx.params.secret)})

    def hopeless(self, ctx: Context[Anything]) -> None:
        raise Unretryable("the table is not there")

    def fails(self, ctx: Context[Anything]) -> None:
        raise ValueError("row 7")

    def exits(self, ctx: Context[Anything]) -> None:
        sys.exit(3)

    def vanishes(self, ctx: Context[Anything]) -> None:
        os._exit(3)

    def misspeaks(self, ctx: Context[Anything]) -> None:
        """Send the supervisor a packet that is not a frame, on the socket of the worker's own link."""
        for path in Path("/proc/self/fd").iterdir():
            if path.exists() and path.is_socket():
                with socket.socket(fileno=os.dup(int(path.name))) as end:
                    if end.type == socket.SOCK_SEQPACKET:
                        end.send(b"hello")
        time.sleep(3600)

    def dies(self, ctx: Context[Anything]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def bad_result(self, ctx: Context[Anything]) -> dict[str, Any]:
        return {"when": ctx.fire_at}

    def large_result(self, ctx: Context[Anything]) -> dict[str, Any]:
        return {"rows": ["x" * 1000] * 100}

    def prints_much(self, ctx: Context[Anything]) -> None:
        for _ in range(64):
            os.write(1, b"line of text\n" * 1000)


READY: dict[str, int] = {}
"""What the preparation of this process has left: its child, and how often it was called."""


def prepare(environment: Mapping[str, str], scratch: Path) -> None:
    """A cheap preparation: starts a child, as a JVM is one. It waits and fails as the environment says."""
    print("preparing", flush=True)
    (scratch / "engine").touch()
    READY["child"] = subprocess.Popen(SLEEP).pid
    READY["nice"] = os.nice(0)
    gate = environment.get("GATE")
    while gate and not Path(gate).exists():
        time.sleep(0.01)
    if "FAULT" in environment:
        raise OSError(f"no engine in {environment['FAULT']}")


def _channel() -> socket.socket:
    """The worker's own channel to its supervisor, as any code in the worker may find it."""
    for name in list(Path("/proc/self/fd").iterdir()):
        try:
            end = socket.socket(fileno=os.dup(int(name.name)))
        except OSError:
            continue
        if end.type == socket.SOCK_SEQPACKET:
            return end
    raise AssertionError("there is no channel")


def _stay() -> None:
    """Keep this process from exiting when its channel is closed."""
    supervisor_link._exit_orphaned = lambda: time.sleep(60)  # type: ignore[assignment,return-value]


class Forger:
    """Sends frames of its own to its supervisor."""

    Params = Anything

    def run(self, ctx: Context[Anything]) -> None:
        end = _channel()
        match ctx.params.what.partition(":"):
            case "done", _, result:
                end.send(msgpack.packb(["Done", result, False]))
                time.sleep(60)
            case "checkpoints", _, _:
                for number in range(1, 1000):
                    end.send(msgpack.packb(["CheckpointAsk", number, b"x" * 60_000]))
            case "large checkpoint", _, _:
                end.send(msgpack.packb(["CheckpointAsk", 1, b"x" * 70_000]))
                time.sleep(60)
            case "started", _, _:
                for _ in range(1000):
                    end.send(msgpack.packb(["Started"]))
            case "ends unheard", _, _:
                supervisor, worker = os.getppid(), os.getpid()
                os.kill(supervisor, signal.SIGSTOP)
                if os.fork() == 0:
                    while Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        time.sleep(0.01)
                    os.kill(supervisor, signal.SIGCONT)
                    os._exit(0)
                for _ in range(270):  # with the report of the end that is all that a channel of 208 KiB holds, nearly
                    end.send(msgpack.packb(["Started"]))
            case "reports", _, _:
                for report in (["Done", '{"first": 1}', False], ["Failed", "second", True, False, False], ["Started"]):
                    end.send(msgpack.packb(report))
                end.send(msgpack.packb(["Progress", 1.0, None, "x"]))
                end.send(msgpack.packb(["CheckpointAsk", 1, b"x"]))
                time.sleep(60)
            case "reports on", _, _:
                while True:
                    end.send(msgpack.packb(["Done", "{}", False]))
                    time.sleep(0.05)
            case "frame", _, packet:
                _stay()  # or its own link would have it exit
                end.send(msgpack.packb(json.loads(packet)))
                time.sleep(60)
            case "flood", _, _:
                packet = msgpack.packb(["Progress", 1.0, None, "x"])
                for _ in range(8):
                    if os.fork() == 0:
                        while True:
                            end.send(packet)
                time.sleep(0.2)
                os._exit(1)


def no_tools(environ: Mapping[str, str], access: Access) -> list[Tool]:
    """What finds the tools of a preparation, and fails: its process cannot be confined."""
    raise OSError("no tools here")


class Ready:
    """Says what its preparation has left."""

    Params = Anything
    prepare = staticmethod(prepare)

    def run(self, ctx: Context[Anything]) -> dict[str, Any] | None:
        if ctx.params.what == "waits":
            family(ctx)
            time.sleep(3600)
        return {
            **READY,
            "now": os.nice(0),
            "oom": int(Path(f"/proc/{READY['child']}/oom_score_adj").read_text()) if READY else 0,
            "cwd": str(Path.cwd() == ctx.scratch),
            "extra": os.environ.get("EXTRA"),
        }


def family(ctx: Context[Any]) -> None:
    """A child, its child, and one that has left the session; their pids in a file beside the scratch folder."""
    shell = ["sh", "-c", 'echo $$ >> "$0"; "$@" & echo $! >> "$0"; wait']
    pids = next(each for each in ctx.scratch.parents if each.name == "scratch") / f"{ctx.run_id}.pids"
    children = [
        subprocess.Popen([*shell, str(pids), *SLEEP]),
        subprocess.Popen([*shell, str(pids), *SLEEP], start_new_session=True),
        subprocess.Popen(["env", "-i", *SLEEP], start_new_session=True),
    ]
    while not pids.exists() or len(pids.read_text().split()) < 4:
        time.sleep(0.005)
    with pids.open("a") as file:
        file.write(f"{children[2].pid} {os.getpid()} end\n")
