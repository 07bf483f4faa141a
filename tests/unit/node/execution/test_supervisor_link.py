"""When a worker's end of its channel is read."""

import threading

from node.execution import frames
from node.execution.supervisor_link import SupervisorLink


def readers() -> int:
    return sum(thread.name == "supervisor-link" for thread in threading.enumerate())


def test_the_channel_is_read_from_the_first_look_on_and_what_was_sent_before_is_seen_at_once() -> None:
    supervisor, worker = frames.new_channel()
    link, before = SupervisorLink(worker), readers()
    link.send(frames.StartedFrame())
    assert frames.receive(supervisor) == frames.StartedFrame()
    assert readers() == before, "nothing is expected of the supervisor yet"
    supervisor.send(frames.to_packet(frames.StopFrame("cancelled")))
    assert link.stop == "cancelled"
    assert readers() == before + 1
    supervisor.send(frames.to_packet(frames.CheckpointDoneFrame(1, "ok")))
    assert link.commit(b"data") == "ok"
    assert readers() == before + 1
    supervisor.detach()  # it stays open: at its end the reader would end this process, as it does a worker
