"""`confined.py FOLDER ABI kind|command USER`: an attempt of an attacker in a real runner, and what each way gave."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from node.execution.attempt_events import AttemptEnded, Event
from node.execution.order import AttemptLimits, Order
from node.execution.runner import Runner
from node.runtime.boottime import boottime_s
from tasks.access import Access
from tasks.needs import Needs
from tasks.reach import Reach
from testkit.execution.attacker import Target

ATTACKER = "testkit.execution.attacker"


def laid_out(folder: Path) -> dict[str, str]:
    """The node's own, what the attempt is given, and what it is not."""
    files = {
        "secrets": "secrets/pg_password",
        "data": "data/raft/journal",
        "given": "srv/given.csv",
        "outside": "elsewhere/file",
    }
    for name in (*files.values(), "data/scratch/other~1.9/rows"):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text("given" if name == files["given"] else "TOPSECRET")
    # As a node has them whose attempts may be other users'.
    for name, mode in {"secrets": 0o700, "data": 0o711, "data/raft": 0o700, "data/scratch": 0o711}.items():
        (folder / name).chmod(mode)
    (folder / "data/scratch/other~1.9").chmod(0o700)
    return {
        "secrets": str(folder / "secrets"),
        "data": str(folder / "data"),
        "given": str(folder / files["given"]),
        "outside": str(folder / files["outside"]),
    }


async def main(folder: Path, version: int, what: str, user: str = "") -> None:
    places = laid_out(folder)
    os.chdir(places["secrets"])
    listening, abstract = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    name = f"rota-test-{os.getpid()}"
    abstract.bind(f"\0{name}")
    abstract.listen()
    for each in (listening, abstract):
        threading.Thread(target=greet, args=(each,), daemon=True).start()
    neighbour = subprocess.Popen(["sleep", "60"], env={"TOKEN": "TOPSECRET"})  # noqa: ASYNC220  it returns at once
    target = Target(
        **places, node=os.getpid(), neighbour=neighbour.pid, port=listening.getsockname()[1], abstract=name
    ).model_dump(exclude={"scratch"})
    ended: asyncio.Future[AttemptEnded] = asyncio.get_running_loop().create_future()

    def on_event(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            ended.set_result(event)

    access = Access("node-1", (str(folder / "srv"),), (), own=(places["data"], places["secrets"]))
    attempts = Runner(folder / "data", on_event, AttemptLimits(landlock=version), access=access)
    await attempts.start()
    kind, params, needs = (
        (f"{ATTACKER}:Attacker", target, Needs(reaches=(Reach("", "source", "", places["given"]),), network=False))
        if what == "kind"
        else (
            "tasks.command.kind:Command",
            {"argv": [sys.executable, "-m", ATTACKER, json.dumps(target)]},
            Needs(everything=True),
        )
    )
    order = Order("r~1", "r", "k", kind, params, 1, 1, 0, None, None, boottime_s() + 60, access=access, needs=needs)
    attempts.launch(replace(order, run_as=user, may_run_as=(user,) if user else ()))
    try:
        event = await asyncio.wait_for(ended, 60)
    finally:
        neighbour.kill()
        neighbour.wait()
        await attempts.close()
    log = (folder / "data/logs/r~1/1.log").read_text()
    found = event.result if what == "kind" else json.loads(next((x for x in log.splitlines() if x[:1] == "{"), "null"))
    print(json.dumps({"found": found, "error": event.error, "log": log}))


def greet(listening: socket.socket) -> None:
    while True:
        end, _ = listening.accept()
        end.send(b"hello")
        end.close()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
