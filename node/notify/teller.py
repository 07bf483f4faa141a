"""Sends this member's share of the notices, as `node.duty.telling` decides. Runs on the event loop.

A message is sent after its permission is committed, under a live lease; its outcome is committed before the channel's
next message is sent. If a member dies in between, the next sender sends the message again. So a message is sent at
least once, and twice only if its sender, or the receiver's answer, was lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from node.duty.digests import DigestSummary, DueDigest, digests_due
from node.duty.step import LeaseView
from node.duty.telling import Send, telling_step
from node.raft.errors import RaftError
from node.replication.proposer import Insisting
from node.state.codec import BadEntry
from node.state.outbox import GIVE_UP_US, TEXT_CHARS_MAX
from node.state.telling import Tell, Told, holds
from node.state.value import State

_log = logging.getLogger("rota.notify")

PROPOSE_S: Final = 5.0
AGAIN_S: Final = 1.0
"""The pause after a permission was refused, or when it is unknown whether it was committed."""

AFTER_FAULT_S: Final = 10.0
DIGEST_AGAIN_S: Final = 60.0
GAPS_PATIENCE_US: Final = 600_000_000
"""How long a digest waits for finished runs that this member lacks. Then it is made without them, and says so."""

LEASELESS_S: Final = 0.25
"""The wait before the next step while there is something to send, but no lease."""

REST_S: Final = 2.0
"""How long a stopping member waits until its last messages are sent and their outcomes committed."""


class NotSent(Exception):
    """A message was not accepted. The text says why; it is replicated and shown, so it contains no secrets."""


class TellerPort(Insisting, Protocol):
    """A member, as its teller sees it. Called on the event loop."""

    @property
    def me(self) -> str:
        """The member's id."""

    def state(self) -> State:
        """Return the newest state."""

    def lease_now(self) -> LeaseView | None:
        """Return the live lease of this process's incarnation; None while there is none."""

    async def digest_of(self, state: State, due: DueDigest) -> DigestSummary:
        """Work out a digest from the state and this member's history. May raise any error of the history."""


class MessageSender(Protocol):
    """Sends one message: `node.notify.sender.ChannelSender`."""

    async def send(self, cluster_id: str, message: Send, /) -> str:
        """Send a message, in bounded time. Returns the receiver's answer, shortened. Raises `NotSent`."""


class Teller:
    """Sends the notices that this member has to send. `run` does so until it is cancelled."""

    def __init__(
        self, port: TellerPort, sender: MessageSender, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._port = port
        self._sender = sender
        self._sleep = sleep
        self._changed = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._digesting: dict[str, asyncio.Task[None]] = {}
        self._sent: dict[str, int] = {}
        """By channel, the token of the last message that this process began to send, so that it sends none twice."""
        self._resting = False
        self._failing = False

    def wake(self) -> None:
        """Decide again, because the channels, the members or the lease have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                wait_s = self._guarded()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._changed.clear()
        finally:
            for task in (*self._busy.values(), *self._digesting.values()):
                task.cancel()

    async def rest(self) -> None:
        """Begin no new message, and wait a little for those under way, because this member leaves."""
        self._resting = True
        if self._busy:
            await asyncio.wait(list(self._busy.values()), timeout=REST_S)

    def go_on(self) -> None:
        """Resume sending after `rest`, because this member stays."""
        self._resting = False
        self.wake()

    def _guarded(self) -> float | None:
        """Do one step. If it fails, only log the error, because an error here must not end the node."""
        try:
            wait_s = self._step()
        except Exception:  # noqa: BLE001 - it is logged, and the step is tried again
            if not self._failing:
                _log.exception("cannot decide which notices to send, which is a bug in Rota; retrying")
            self._failing = True
            return AFTER_FAULT_S
        self._failing = False
        return wait_s

    def _step(self) -> float | None:
        """Begin the digests and messages that are due. Returns the seconds until the next step; None: on a change."""
        state = self._port.state()
        waits = any(row.notices or row.digest_us for row in state.channels.values())
        if self._resting or not waits:
            return None
        now_us = self._port.now_us()
        digests, digest_us = digests_due(state, self._port.me, now_us, self._digesting)
        if not digests and not any(row.notices for row in state.channels.values()):
            return _seconds_until(digest_us, now_us)
        lease = self._port.lease_now()
        if lease is None:
            return LEASELESS_S
        for due in digests:
            self._begin(due.channel, self._make_digest(due), self._digesting)
        step = telling_step(state, self._port.me, lease.incarnation, now_us, self._busy)
        for tell in step.proposals:
            self._begin(tell.channel, self._ask(tell))
        for send in step.sends:
            if self._sent.get(send.channel) != send.permission.token:
                self._sent[send.channel] = send.permission.token
                self._begin(send.channel, self._send(state.cluster_id, send))
        looks = [look_us for look_us in (step.look_us, digest_us) if look_us is not None]
        return _seconds_until(min(looks, default=None), now_us)

    def _begin(
        self, channel: str, work: Coroutine[Any, Any, None], busy: dict[str, asyncio.Task[None]] | None = None
    ) -> None:
        among = self._busy if busy is None else busy
        among[channel] = task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._done(channel, among))

    def _done(self, channel: str, among: dict[str, asyncio.Task[None]]) -> None:
        del among[channel]
        self.wake()

    async def _make_digest(self, due: DueDigest) -> None:
        """Propose a digest. Refused if another member has made it: then the state says so, and it is due no more."""
        try:
            made = await self._port.digest_of(self._port.state(), due)
        except Exception as error:  # noqa: BLE001 - it is logged, and tried again
            _log.warning("channel %s: its digest cannot be made now, retrying in a minute: %s", due.channel, error)
            await self._sleep(DIGEST_AGAIN_S)
            return
        now_us = self._port.now_us()
        if not made.complete and now_us < due.nominal_us + GAPS_PATIENCE_US:
            _log.info("channel %s: its digest waits for finished runs that this member lacks yet", due.channel)
            await self._sleep(DIGEST_AGAIN_S)
            return
        try:
            result = await self._port.propose(made.entry(due, now_us), PROPOSE_S)
        except (RaftError, BadEntry) as error:
            _log.debug("the digest of %s is not made yet, retrying: %s", due.channel, error)
        else:
            if result.ok:
                return
            _log.debug("the digest of %s was refused: %s", due.channel, result.detail)
        await self._sleep(AGAIN_S)

    async def _ask(self, tell: Tell) -> None:
        """Propose a permission. Once the state holds it, the next step sends the message."""
        try:
            result = await self._port.propose(tell, PROPOSE_S)
        except (RaftError, BadEntry) as error:
            _log.debug("no permission yet to send on %s, retrying: %s", tell.channel, error)
        else:
            if result.ok:
                return
            _log.debug("the permission to send on %s was refused: %s", tell.channel, result.detail)
        await self._sleep(AGAIN_S)

    async def _send(self, cluster_id: str, send: Send) -> None:
        permission, name = send.permission, send.channel
        try:
            await self._sender.send(cluster_id, send)
            ended = Told(
                self._port.now_us(),
                name,
                permission.token,
                "accepted",
                dropped=send.dropped,
                dropped_successes=send.dropped_successes,
            )
        except NotSent as error:
            why = _storable(str(error))
            _log.warning("channel %s: a message was not accepted, it is tried again: %s", name, why)
            ended = Told(self._port.now_us(), name, permission.token, "failed", why)
        except Exception as error:  # noqa: BLE001 - the permission must be given back after any error
            _log.exception("channel %s: a message could not be sent, which is a bug in Rota; it is tried again", name)
            ended = Told(self._port.now_us(), name, permission.token, "failed", _storable(f"a bug in Rota: {error!r}"))

        def worth() -> bool:
            row = self._port.state().channels.get(name)
            return row is not None and row.sending == permission and holds(self._port.state(), permission)

        result = await self._port.insist(ended, worth)
        if result is not None and (given_up := result.value.get("given_up")):
            hours = GIVE_UP_US // 3_600_000_000
            _log.error("channel %s: gave up on %d notices that could not be sent for %d hours", name, given_up, hours)


def _seconds_until(look_us: int | None, now_us: int) -> float | None:
    return None if look_us is None else max(0.0, (look_us - now_us) / 1e6)


def _storable(text: str) -> str:
    """Return the text in a form that an entry can store: short, and valid UTF-8."""
    return text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
