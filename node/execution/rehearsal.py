"""Rehearsals: while a fork waits for its attempt, it touches the memory that the attempt will write to.

Forks share pages of memory. A page is copied when one process writes to it, and counting a reference is a write. The
start of an attempt writes to a thousand shared pages, whose copying takes 5 to 7 ms of processor time. So a rehearsal
runs the steps of a start once, with an example, and without a visible effect.
"""

import logging
import threading
from pathlib import Path
from typing import Final

from node.execution import attempt_life, frames, limits
from node.execution.attempt_context import AttemptContext
from node.execution.domain import Commands, MadeAhead
from node.execution.linux import Timer, permitted_capabilities
from node.execution.order import AttemptLimits, Brief, Order, log_path, scratch_path, unpack_brief
from node.execution.supervisor_link import SupervisorLink
from node.runtime.boottime import boottime_s
from node.runtime.descriptors import below_own
from tasks.installed_kinds import load_kind
from tasks.secret import Redactor, references_in

_EXAMPLE: Final = Brief(
    Order(
        run_id="r~1",
        task="r",
        kind="command",
        target="tasks.command.kind:Command",
        params={"argv": ["true"]},
        attempt=1,
        token=1,
        fire_at_us=0,
        checkpoint=None,
        timeout_s=None,
        deadline_s=0.0,
    ),
    AttemptLimits(),
    "/",
)


def of_supervisor(commands: Commands) -> MadeAhead | None:
    """Rehearse a supervisor's start and end. Returns the domain made ahead for a command; None if without Landlock."""
    brief = _brief()
    life = attempt_life.AttemptLife(boottime_s() + 60.0, None, brief.limits)
    attempt_life.step(life, boottime_s())
    attempt_life.conclude(life, frames.DoneFrame("{}", False), 0, None)
    timer = Timer()
    timer.set(life.deadline_s)
    timer.close()
    Redactor().feed(b"a line\n")
    for frame in (frames.HelloFrame(1), frames.StartedFrame(), frames.DoneFrame("{}", False)):
        frames.from_packet(frames.to_packet(frame))
    limits.settled(brief.order.limits, brief.limits.most, brief.order.node, below_own()[1])
    if not commands.version:
        return None
    ahead = MadeAhead(commands)
    ahead.take(commands)
    return ahead


def of_worker(link: SupervisorLink) -> None:
    """Rehearse a worker's start, up to the call of its kind."""
    order = _brief().order
    kind = load_kind(order.target)
    params = kind.Params.model_validate(dict(order.params))
    references_in(params)
    permitted_capabilities()
    ctx = AttemptContext(order, params, link, Path("/"), Redactor())
    logging.getLogger("rota.task").debug("%s", ctx.fire_at)
    frames.to_packet(frames.StartedFrame())


def _brief() -> Brief:
    brief = unpack_brief(_EXAMPLE.pack())
    log_path(Path(brief.folder), brief.order.run_id, 1)
    scratch_path(Path(brief.folder), brief.order)
    thread = threading.Thread(target=boottime_s)
    thread.start()
    thread.join()
    return brief
