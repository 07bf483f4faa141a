"""The worker's end of its channel to the supervisor."""

import os
import select
import socket
import threading
import time
from typing import Final, NoReturn, TypeVar

from node.execution import frames
from node.execution.account import Account, unpack_account
from node.execution.order import Brief
from node.execution.preparation import PreparationBrief, read_brief
from tasks.errors import MissingSecret
from tasks.secret import Reference

PROGRESS_S: Final = 0.25
"""The shortest time between two progress frames."""


_Awaited = TypeVar("_Awaited", frames.BriefFrame, frames.GoFrame)


class SupervisorLink:
    """Sends frames to the supervisor, and receives its answers. One thread reads the channel; any thread may write.

    The reading thread is started when a frame is first expected (`_listen`), because many attempts never expect one.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._changed = threading.Condition()
        self._asking = threading.Lock()
        self._answers: dict[int, str] = {}
        self._secret: frames.SecretFrame | None = None
        self._sequence = 0
        self._progress: frames.ProgressFrame | None = None
        self._progress_at_s = 0.0
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._beginning = threading.Lock()
        self._listens = False
        self._stop: str | None = None
        self.remarks = ""
        self.account: Account | None = None

    def wait_for_brief(self) -> Brief | PreparationBrief:
        """Wait for the brief. Its work may begin only after `wait_for_go`. Exits if the supervisor is gone."""
        _, descriptor = self._wait_for(frames.BriefFrame)
        assert descriptor is not None
        brief = read_brief(descriptor)
        os.close(descriptor)
        return brief

    def wait_for_go(self) -> int | None:
        """Wait until the work may begin. Returns the descriptor of the ruleset to enter; None: no ruleset applies.

        By then the supervisor has recorded this process id. Exits if the supervisor is gone.
        """
        go, ruleset = self._wait_for(frames.GoFrame)
        self.remarks, self.account = go.remarks, unpack_account(go.account)
        return ruleset

    def _wait_for(self, awaited: type[_Awaited]) -> tuple[_Awaited, int | None]:
        """Wait for a frame of the type `awaited`, and skip others. Returns the frame and its descriptor."""
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._end, frames.FRAME_BYTES_MAX, 1)
            if not packet:
                _exit_orphaned()
            if isinstance(frame := frames.from_packet(packet), awaited):
                return frame, descriptors[0] if descriptors else None

    @property
    def stop(self) -> str | None:
        """The reason why the attempt should stop, as the supervisor has sent it; None: it need not stop."""
        self._listen()
        return self._stop

    def send(self, frame: frames.Frame) -> None:
        """Send `frame`. Blocks while the channel is full."""
        self._end.send(frames.to_packet(frame), socket.MSG_NOSIGNAL)

    def commit(self, data: bytes) -> str:
        """Have a checkpoint committed. Blocks until the `CheckpointDoneFrame`, and returns its code."""
        self._listen()
        with self._changed:
            self._sequence += 1
            sequence = self._sequence
        self.send(frames.CheckpointAskFrame(sequence, data))
        with self._changed:
            self._changed.wait_for(lambda: sequence in self._answers)
            return self._answers.pop(sequence)

    def secret(self, reference: Reference) -> str:
        """Ask for the value of a reference. The log does not show it from now on. Blocks. Raises `MissingSecret`."""
        self._listen()
        source, name = next(iter(reference.model_dump().items()))
        # Only one request at a time, because the answers carry no number.
        with self._asking, self._changed:
            self.send(frames.SecretAskFrame(source, name))
            self._changed.wait_for(lambda: self._secret is not None)
            answer, self._secret = self._secret, None
        assert answer is not None
        if answer.value is None:
            raise MissingSecret(answer.why)
        return answer.value

    def progress(self, progress: frames.ProgressFrame) -> None:
        """Send `progress`, at once or `PROGRESS_S` after the last frame of this kind. Only the latest value is sent."""
        if time.monotonic() - self._progress_at_s >= PROGRESS_S:
            self._progress, self._progress_at_s = None, time.monotonic()
            self.send(progress)
            return
        self._listen()
        first, self._progress = self._progress is None, progress
        if first:
            os.write(self._wake_write, b".")

    def flush_progress(self) -> None:
        """Send the latest progress if it has not been sent yet."""
        last, self._progress = self._progress, None
        if last is not None:
            self._progress_at_s = time.monotonic()
            self.send(last)

    def _listen(self) -> None:
        """Start the thread that reads the channel. The process must be confined by now, so that the thread is too.

        Before it returns, it handles the frames that the supervisor has sent already.
        """
        if self._listens:
            return
        with self._beginning:
            if not self._listens:
                sent = select.poll()
                sent.register(self._end, select.POLLIN)
                while sent.poll(0):
                    self._hear(self._receive())
                threading.Thread(target=self._read, daemon=True, name="supervisor-link").start()
                self._listens = True

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            wait_s = None if self._progress is None else max(0.0, self._progress_at_s + PROGRESS_S - time.monotonic())
            ready = dict(poll.poll(None if wait_s is None else wait_s * 1000 + 1))
            if self._wake_read in ready:
                os.read(self._wake_read, 64)
            if self._end.fileno() in ready:
                self._hear(self._receive())
            if self._progress is not None and time.monotonic() - self._progress_at_s >= PROGRESS_S:
                self.flush_progress()

    def _hear(self, frame: frames.Frame) -> None:
        with self._changed:
            match frame:
                case frames.StopFrame(why=why):
                    self._stop = why
                case frames.CheckpointDoneFrame(sequence=sequence, code=code):
                    self._answers[sequence] = code
                case frames.SecretFrame():
                    self._secret = frame
            self._changed.notify_all()

    def _receive(self) -> frames.Frame:
        frame = frames.receive(self._end)
        if frame is None:
            _exit_orphaned()
        return frame


def _exit_orphaned() -> NoReturn:
    """Exit at once: without a supervisor, no work of this process can be committed."""
    os._exit(1)
