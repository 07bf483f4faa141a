"""A node's process: starts the member and its API, waits for a signal, hands its runs over and stops."""

import asyncio
import logging
import os
import signal
import sqlite3
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiohttp import web

from node.app import other_users
from node.app.config import SHORT_SECRET, Config, is_loopback, nothing_allowed, secrets_in_reach
from node.app.data_dir import DataDir, DataDirInUse, ForeignFolder
from node.app.member import LocalMember
from node.app.offered_kinds import kinds_to_offer
from node.client import Client
from node.execution.cgroup import Delegation, take_over
from node.execution.leftovers import LeftoversRemain, kill_leftovers
from node.execution.nursery_link import NurseryFailed
from node.history.file import DamagedHistory
from node.http.app import build_app, serve_on
from node.http.door.server_context import RequestLimits
from node.identity.cluster_id import ClusterId
from node.liveness.server import PortInUseError
from node.liveness.wall_clock import now_us
from node.membership.addresses import NoMember
from node.membership.join_request import JoinRequest, NotLetIn, let_in_as
from node.membership.removal_watch import Removed
from node.peer.join_client import JoinClient
from node.raft.errors import RaftError
from node.runtime.descriptors import clients_for, raise_soft_limit, streams_for
from node.runtime.gc_tuning import collect_in_short
from node.runtime.logs import flush
from node.state.codec import DamagedSnapshot
from node.state.entries import Seed
from node.tracing.exports import CannotExport
from node.web.views import PAGES
from tasks import landlock
from tasks.installed_kinds import KindError, installed
from tasks.version import version

_log = logging.getLogger("rota")

_REFUSALS: Final = (
    DataDirInUse,
    ForeignFolder,
    DamagedHistory,
    DamagedSnapshot,
    RaftError,
    PortInUseError,
    LeftoversRemain,
    NurseryFailed,
    KindError,
    CannotExport,
    NoMember,
    NotLetIn,
)
"""Errors that keep a node from starting. Each has a message that says what to do, so no traceback is logged."""


STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

STOP_S: Final = 15.0
"""How long stopping may take, in seconds. Then the process exits: a disk that hangs must not keep it alive."""

SWITCH_S: Final = 0.001
"""The interpreter's switch interval: a computing thread (placement, a snapshot) yields to the event loop, Raft and the
heartbeats after this time. With Python's default of 5 ms, each step of a commit could wait that long."""


class CannotStart(Exception):
    """The node does not start. The message says what to do."""


def run_node(config: Config) -> int:
    """Run a node until SIGTERM, SIGINT or SIGHUP. Returns the exit code: 0, or 1 if the node failed while it ran.

    Raises `CannotStart`.
    """
    # The node's files are private to its user; tasks start with the umask that the node was started with.
    before = os.umask(0o077)
    try:
        return _run(replace(config, umask=before))
    finally:
        os.umask(before)


def _run(config: Config) -> int:
    if len(config.secret) < SHORT_SECRET:
        _log.warning(
            "ROTA_SECRET is short: anyone who guesses it can run code here; make one with: openssl rand -hex 32"
        )
    join_request, cluster = None, ClusterId()
    try:
        if lacking := other_users.why_not_other_users(config):
            raise CannotStart(lacking)
        folder = DataDir(config.data, config.node, now_us(), passable=config.other_users)
        delegation = take_over()
        killed = kill_leftovers(folder.path, uids=config.work_uids)
        seed = _own_address(config, folder)
        if config.join_url is not None and folder.fresh:
            join_request = JoinRequest(seed, config.join_url, _newcomer(config, config.join_url))
            config = replace(config, members=join_request.members())
            cluster = ClusterId(join_request.cluster_id)
        elif not config.members:
            config = replace(config, members=(seed,))
        if config.join_url is not None and not folder.fresh:
            _log.info(
                "ROTA_JOIN is not used: %s has been in use, and its node stays in its cluster; to join another one, "
                "start with an empty folder",
                folder.path,
            )
        folder.keep_place(seed)
    except _REFUSALS as error:
        raise CannotStart(str(error)) from error
    for sentence in secrets_in_reach(config.own, config.secrets_dir):
        _log.warning("%s", sentence)
    if nothing := nothing_allowed(config.access):
        _log.info(
            "these settings are not set, so tasks on this node reach no such folder or host (README, "
            "'What tasks may reach'): %s",
            ", ".join(nothing),
        )
    for sentence in other_users.doubts(config, folder.path):
        _log.warning("%s", sentence)
    if killed:
        _log.warning("killed %d processes that an earlier start had left behind", killed)
    descriptors = raise_soft_limit()
    collect_in_short()
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(_serve(config, folder, seed, join_request, cluster, descriptors, delegation))


def _own_address(config: Config, folder: DataDir) -> Seed:
    """Return this node's host and ports: from ROTA_MEMBERS, its last start, or the cluster that it joins.

    Raises `NotLetIn`, `ForeignFolder`, `CannotStart`.
    """
    known = config.me or (None if folder.fresh else folder.place())
    if known is not None:
        return known
    if config.join_url is None:
        raise CannotStart(
            f"{folder.path} has lost the record of this node's address: set ROTA_MEMBERS={config.node}="
            "host:raftport:httpport, or ROTA_JOIN to the address of a member's API (http://host:8101)"
        )
    return let_in_as(config.node, config.join_url, _newcomer(config, config.join_url))


def _newcomer(config: Config, url: str) -> JoinClient:
    """Return the client that asks the cluster at `url` to add this node."""
    return JoinClient(Client(url.split(",")), config.secret, config.node)


async def _serve(
    config: Config,
    folder: DataDir,
    seed: Seed,
    join_request: JoinRequest | None,
    cluster: ClusterId,
    descriptors: int,
    delegation: Delegation,
) -> int:
    stop = _stop_signal()
    try:
        kinds = installed()
        member = LocalMember(
            config, folder, seed, kinds, kinds_to_offer(kinds, config.allow_command), cluster, delegation
        )
    except _REFUSALS as error:
        raise CannotStart(str(error)) from error
    if config.confinement_required and not landlock.abi():
        raise CannotStart(f"ROTA_CONFINE=required, and {member.not_kept[0]}")
    for sentence in member.not_kept:
        _log.warning("%s", sentence)
    for sentence in member.not_held:
        _log.info("%s", sentence)
    api = await _serve_api(config, seed, member, descriptors)
    try:
        await member.start(join_request)
    except (*_REFUSALS, OSError, sqlite3.Error) as error:
        await member.close()
        await api.cleanup()
        raise CannotStart(str(error)) from error
    _log.info("%s serves on http://%s:%d (rota %s)", config.node, config.bind, seed.http_port, version())
    if is_loopback(config.bind) and not is_loopback(seed.host):
        _log.warning(
            "other members reach this node at %s, but it listens on %s only: set ROTA_BIND", seed.host, config.bind
        )
    await asyncio.wait((stop, member.failed), return_when=asyncio.FIRST_COMPLETED)
    _exit_when_hung()
    if member.failed.done():
        failure = member.failed.result()
        _log_failure(failure, config.data)
        await member.close()
    else:
        failure = None
        _log.info("stopping on %s: handing over the runs", stop.result().name)
        await member.stop()
    await api.cleanup()
    return 0 if failure is None or isinstance(failure, Removed) else 1


def _stop_signal() -> "asyncio.Future[signal.Signals]":
    """Return a future that is set to the first signal that asks this process to stop."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[signal.Signals] = loop.create_future()
    for number in STOP_SIGNALS:
        # If SIGHUP is ignored at the start, as under nohup, the node must survive when its terminal is closed.
        if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:
            loop.add_signal_handler(number, _request_stop, stop, number)
    return stop


async def _serve_api(config: Config, seed: Seed, member: LocalMember, descriptors: int) -> web.AppRunner:
    """Serve the member's API. If that fails, close the member, and raise `CannotStart`."""
    try:
        clients = clients_for(descriptors, config.max_runs)
        app = build_app(member, member.peers, RequestLimits(streams=streams_for(clients)), pages=PAGES)
        api, _ = await serve_on(app, config.bind, seed.http_port, clients)
    except OSError as error:
        await member.close()
        raise CannotStart(
            f"cannot serve the API on {config.bind}:{seed.http_port} ({error.strerror}): is another node or "
            "program using the port? ROTA_MEMBERS has this node's ports, ROTA_BIND the address on which it listens"
        ) from error
    return api


def _log_failure(failure: Exception, data: Path) -> None:
    """Log why this node cannot go on, and what to do."""
    if isinstance(failure, Removed):
        _log.warning("stopping: %s", failure)
    elif isinstance(failure, sqlite3.Error | OSError):
        _log.critical(
            "this node cannot go on: its data folder %s cannot be used: %s. Check the disk, then start the node again; "
            "the other members have the same data",
            data.absolute(),
            failure,
        )
    else:
        # Errors whose message says what to do are logged without a traceback.
        traceback = None if isinstance(failure, _REFUSALS) else failure
        _log.critical("this node cannot go on: %s", failure, exc_info=traceback)


def _request_stop(stop: "asyncio.Future[signal.Signals]", number: signal.Signals) -> None:
    if not stop.done():
        stop.set_result(number)


def _exit_when_hung() -> None:
    """Exit after `STOP_S` even if stopping hangs. The timer's daemon thread does not keep the process alive."""

    def end() -> None:
        _log.critical("shutdown timed out after %.0f s; exiting", STOP_S)
        flush()
        os._exit(1)

    timer = threading.Timer(STOP_S, end)
    timer.daemon = True
    timer.start()
