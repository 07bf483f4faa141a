"""Channels on which notices are sent, and how sending on them goes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from typing_extensions import TypedDict

from node.duty.digests import digest_so_far, next_digest_us
from node.duty.telling import sender
from node.http.api.shapes import Cursor, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.notify.message import digest_lines
from node.notify.teller import NotSent
from node.state.channel import Channel, channel_of
from node.state.outbox import ChannelRow
from node.state.telling import DeleteChannel, PutChannel, holds
from node.state.times import rfc3339, rfc3339_or_none
from node.state.value import State


class LastMessageView(TypedDict):
    """The last try to send a message. `error` null: it was accepted."""

    at: Time
    node: str
    notices: int
    error: str | None


class ChannelView(TypedDict):
    """A channel: its definition with all defaults, and how sending goes.

    `sender` is the member that sends the next message, `sending` the one that is sending now. `waiting` notices are not
    sent yet, the oldest since `waiting_since`. The last `failures` tries failed, and the next one begins at `retry_at`.
    `told`, `given_up` and `dropped` count notices since the channel was made: accepted ones, those that could not be
    sent for a day, and those for which there was no room. For the last, notices of successes are counted by themselves:
    `dropped_successes`. The last digest was for `digest_since`, or there are digests since then, and the next one is
    for `digest_next`; null: the channel has none.
    """

    name: str
    version: int
    definition: dict[str, Any]
    sender: str | None
    sending: str | None
    waiting: int
    waiting_since: Time | None
    failures: int
    retry_at: Time | None
    told: int
    given_up: int
    given_up_at: Time | None
    dropped: int
    dropped_successes: int
    last: LastMessageView | None
    digest_since: Time | None
    digest_next: Time | None


class ChannelDigestView(TypedDict):
    """What the next digest of a channel would say now: its title, its text for people, and its figures for webhooks."""

    title: str
    text: str
    figures: dict[str, Any]


class ChannelPage(TypedDict):
    """Channels, by name."""

    items: list[ChannelView]
    next: Cursor


class ChannelTestView(TypedDict):
    """A test message was accepted: which node sent it, and the receiver's answer.

    `tasks` is the number of tasks that have the channel's labels; null: it has none, and gets notices of all tasks.
    """

    node: str
    answer: str
    tasks: int | None


endpoints = Endpoints("channels")


@endpoints.add("GET", "/v1/channels", {200: ResponseSpec("The channels", ChannelPage)})
async def channels(context: RequestContext) -> web.Response:
    """List the channels, and how sending on them goes. One page lists all, because there are a hundred at most."""
    state = context.state
    page: ChannelPage = {
        "items": [channel_view(state, state.channels[name]) for name in sorted(state.channels)],
        "next": None,
    }
    return context.answer(page)


@endpoints.add("GET", "/v1/channels/{name}", {200: ResponseSpec("The channel", ChannelView)}, ("not-found",))
async def channel(context: RequestContext) -> web.Response:
    """Show one channel."""
    row = _known(context)
    return context.answer(channel_view(context.state, row))


@endpoints.add(
    "PUT",
    "/v1/channels/{name}",
    {
        200: ResponseSpec("It was there before, and now has this definition", ChannelView),
        201: ResponseSpec("It is made", ChannelView),
    },
    ("bad-request", "too-large", "invalid", "conflict", "no-quorum", "outcome-unknown"),
    body=Channel,
)
async def put_channel(context: RequestContext) -> web.Response:
    """Create or change a channel. Its waiting notices are kept, and are tried again at once."""
    name = context.path("name")
    definition = await context.model(Channel)
    result = await context.propose(PutChannel(context.server.now_us(), name, definition.pack()))
    row = context.state.channels.get(name)
    if row is None:
        raise Problem("conflict", "the channel was made, and has been deleted by another request since")
    status = 201 if result.value["change"] == "created" else 200
    return context.answer(channel_view(context.state, row), status)


@endpoints.add(
    "DELETE",
    "/v1/channels/{name}",
    {204: ResponseSpec("It is deleted, with the notices that were not told yet")},
    ("not-found", "no-quorum", "outcome-unknown"),
)
async def delete_channel(context: RequestContext) -> web.Response:
    """Delete a channel, with its notices that are not sent yet."""
    await context.propose(DeleteChannel(context.server.now_us(), context.path("name")))
    return web.Response(status=204)


@endpoints.add(
    "POST",
    "/v1/channels/{name}/test",
    {200: ResponseSpec("The receiver accepted a test message", ChannelTestView)},
    ("not-found", "not-sent"),
)
async def test_channel(context: RequestContext) -> web.Response:
    """Send a test message now, from the answering node, with that node's secrets and settings."""
    row = _known(context)
    definition = channel_of(row.packed)
    try:
        answer = await context.node.test_channel(row.name, definition)
    except NotSent as error:
        raise Problem("not-sent", str(error), node=context.node.settings.node) from None
    # In a thread, because it visits all tasks.
    tasks = await asyncio.to_thread(_chosen, context.state, definition.labels) if definition.labels else None
    view: ChannelTestView = {"node": context.node.settings.node, "answer": answer, "tasks": tasks}
    return context.answer(view)


@endpoints.add(
    "GET",
    "/v1/channels/{name}/digest",
    {200: ResponseSpec("The digest", ChannelDigestView)},
    ("not-found", "conflict"),
)
async def channel_digest(context: RequestContext) -> web.Response:
    """Show what the next digest of a channel would say now, by the answering node's history. Nothing is sent."""
    row = _known(context)
    due = digest_so_far(row, context.server.now_us())
    if due is None:
        raise Problem("conflict", f"{row.name} has no digest: it is switched off, or needs digest: {{at: '07:00'}}")
    made = await context.node.digest_of(context.state, due)
    lines = digest_lines(made.figures)
    view: ChannelDigestView = {"title": f"Rota: {made.text}", "text": "\n".join(lines), "figures": made.figures}
    return context.answer(view)


def _chosen(state: State, labels: Mapping[str, str]) -> int:
    """Count the tasks that have these labels."""
    return sum(labels.items() <= row.spec.labels.items() for row in state.tasks.values())


def channel_view(state: State, row: ChannelRow) -> ChannelView:
    """Return a channel as the API shows it."""
    last, sending = row.last, row.sending
    return {
        "name": row.name,
        "version": row.version,
        "definition": channel_of(row.packed).plain(),
        "sender": sender(state, row.name, row.tries),
        "sending": sending.member if sending is not None and holds(state, sending) else None,
        "waiting": len(row.notices),
        "waiting_since": rfc3339(row.notices[0].at_us) if row.notices else None,
        "failures": row.tries,
        "retry_at": rfc3339(row.again_us) if row.tries and row.notices else None,
        "told": row.told,
        "given_up": row.given_up,
        "given_up_at": rfc3339_or_none(row.given_up_us),
        "dropped": row.lost,
        "dropped_successes": row.lost_successes,
        "last": None
        if last is None
        else {"at": rfc3339(last.at_us), "node": last.member, "notices": last.notices, "error": last.error},
        "digest_since": rfc3339(row.digest_us) if row.digest_us else None,
        "digest_next": rfc3339_or_none(next_digest_us(row)),
    }


def _known(context: RequestContext) -> ChannelRow:
    name = context.path("name")
    row = context.state.channels.get(name)
    if row is None:
        raise Problem("not-found", f"there is no channel {name!r}; GET /v1/channels lists them")
    return row
