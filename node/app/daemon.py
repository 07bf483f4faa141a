"""A node's process: starts the member and its API, waits for a signal, and stops in good order."""

import asyncio
import logging
import os
import signal
import sqlite3
import sys
import threading
from dataclasses import replace
from typing import Final

from node.app.config import SHORT_SECRET, Config, is_loopback
from node.app.data_dir import DataDir, DataDirInUse, ForeignFolder
from node.app.member import LocalMember
from node.app.offered_kinds import offered
from node.app.task_access import nothing_allowed, secrets_in_reach
from node.client import Client
from node.execution.leftovers import LeftoversRemain, kill_leftovers
from node.execution.nursery_link import NurseryFailed
from node.history.file import DamagedHistory
from node.http.app import build_app, serve_on
from node.http.request_limits import RequestLimits
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
from tasks.kinds import KindError, installed

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
    NoMember,
    NotLetIn,
)
"""What keeps a node from starting, each with a message that says what to do."""


STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

STOP_S: Final = 15.0
"""An end that takes longer is cut short: a disk that hangs must not keep a stopped node's process for ever."""

SWITCH_S: Final = 0.001
"""A thread that computes (placing, a snapshot) gives way to the loop, Raft and the heartbeats after so long; after
Python's 5 ms, each of the steps that a commit takes would wait for so long."""


class CannotStart(Exception):
    """The node does not start. The message says what to do."""


def serve(config: Config) -> int:
    """Run a node until SIGTERM, SIGINT or SIGHUP. The exit code: 0, or 1 if it failed while it ran.

    Raises `CannotStart`.
    """
    # What the node writes is its user's alone; its work begins with the umask that the node was started with.
    before = os.umask(0o077)
    try:
        return _run(replace(config, umask=before))
    finally:
        os.umask(before)


def _run(config: Config) -> int:
    if len(config.secret) < SHORT_SECRET:
        _log.warning(
            "ROTA_SECRET is short: who guesses it can run code here; make a better one with: openssl rand -hex 32"
        )
    join_request, cluster = None, ClusterId()
    try:
        folder = DataDir(config.data, config.node, now_us())
        killed = kill_leftovers(folder.path)
        seed = _place(config, folder)
        if config.join_url is not None and folder.fresh:
            join_request = JoinRequest(seed, config.join_url, _asked(config, config.join_url))
            config = replace(config, members=join_request.members())
            cluster = ClusterId(join_request.cluster_id)
        elif not config.members:
            config = replace(config, members=(seed,))
        folder.keep_place(seed)
    except _REFUSALS as error:
        raise CannotStart(str(error)) from error
    for sentence in secrets_in_reach(config.own, config.secrets_dir):
        _log.warning("%s", sentence)
    if nothing := nothing_allowed(config.access):
        _log.info(
            "not set, so that tasks reach nothing of the kind on this node (README, 'What tasks may reach'): %s",
            ", ".join(nothing),
        )
    if killed:
        _log.warning("killed %d processes that an earlier start had left behind", killed)
    descriptors = raise_soft_limit()
    collect_in_short()
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(_serve(config, folder, seed, join_request, cluster, descriptors))


def _place(config: Config, folder: DataDir) -> Seed:
    """Where this node is to be: as ROTA_MEMBERS says, or as at its last start, or as the cluster has it already.

    Raises `NotLetIn`, `ForeignFolder`, `CannotStart`.
    """
    known = config.me or (None if folder.fresh else folder.place())
    if known is not None:
        return known
    if config.join_url is None:
        raise CannotStart(
            f"{folder.path} does not say any more where this node is: set ROTA_MEMBERS={config.node}="
            "host:raftport:httpport, or ROTA_JOIN to the address of a member's API (http://host:8101)"
        )
    return let_in_as(config.node, config.join_url, _asked(config, config.join_url))


def _asked(config: Config, url: str) -> JoinClient:
    return JoinClient(Client(url.split(",")), config.secret, config.node)


async def _serve(
    config: Config,
    folder: DataDir,
    seed: Seed,
    join_request: JoinRequest | None,
    cluster: ClusterId,
    descriptors: int,
) -> int:
    stop: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    for number in STOPPING:
        # Whoever started this with SIGHUP ignored, as nohup does, wants it to go on without its terminal.
        if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:
            asyncio.get_running_loop().add_signal_handler(number, _stop, stop, number)
    try:
        kinds = installed()
        member = LocalMember(config, folder, seed, kinds, offered(kinds, config.allow_command), cluster)
    except _REFUSALS as error:
        raise CannotStart(str(error)) from error
    try:
        clients = clients_for(descriptors, config.max_runs)
        app = build_app(member, member.peers, RequestLimits(streams=streams_for(clients)))
        runner, _ = await serve_on(app, config.bind, seed.http_port, clients)
    except OSError as error:
        await member.close()
        raise CannotStart(
            f"cannot serve the API on {config.bind}:{seed.http_port} ({error.strerror}): is another node running "
            "there, or the port taken? ROTA_MEMBERS names this node's ports, ROTA_BIND where it listens"
        ) from error
    try:
        await member.start(join_request)
    except (*_REFUSALS, OSError, sqlite3.Error) as error:
        await member.close()
        await runner.cleanup()
        raise CannotStart(str(error)) from error
    _log.info("%s serves on http://%s:%d", config.node, config.bind, seed.http_port)
    if is_loopback(config.bind) and not is_loopback(seed.host):
        _log.warning(
            "others are to reach this node at %s, and it listens on %s only: set ROTA_BIND", seed.host, config.bind
        )
    await asyncio.wait((stop, member.failed), return_when=asyncio.FIRST_COMPLETED)
    _end_in_time()
    if not member.failed.done():
        _log.info("stopping on %s: handing over what runs", stop.result().name)
        await member.stop()
        await runner.cleanup()
        return 0
    failure = member.failed.result()
    if isinstance(failure, Removed):
        _log.warning("stopping: %s", failure)
    elif isinstance(failure, sqlite3.Error | OSError):
        _log.critical(
            "this node cannot go on: its data folder %s cannot be used: %s. See to the disk, and start it again; the "
            "others have what it had",
            config.data.absolute(),
            failure,
        )
    else:
        # What has a sentence of its own needs no traceback.
        traceback = None if isinstance(failure, _REFUSALS) else failure
        _log.critical("this node cannot go on: %s", failure, exc_info=traceback)
    await member.close()
    await runner.cleanup()
    return 0 if isinstance(failure, Removed) else 1


def _stop(stop: "asyncio.Future[signal.Signals]", number: signal.Signals) -> None:
    if not stop.done():
        stop.set_result(number)


def _end_in_time() -> None:
    """See that the process ends, whatever hangs: a thread of its own, which ends with the process."""

    def end() -> None:
        _log.critical("what is to be closed hangs: ending without")
        flush()
        os._exit(1)

    timer = threading.Timer(STOP_S, end)
    timer.daemon = True
    timer.start()
