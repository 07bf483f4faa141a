"""Values derived from configuration and state: a member's Join entry, its orders, its heartbeats' view. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from node.app.config import Config
from node.app.offered_kinds import environment_for
from node.execution.attempt_secrets import AttemptSecrets
from node.execution.limits import asked
from node.execution.order import Order
from node.liveness.view import Peer, View
from node.raft.ports import RaftRole
from node.state.entries import Seed
from node.state.members import Join
from node.state.value import Labels, Run, State
from tasks.definition.spec import NODE_LABEL, Spec
from tasks.definition.template import OccurrenceTimes, sample_beside
from tasks.installed_kinds import KindEntry, load_kind, needs_of
from tasks.needs import UNCONFINED, Needs
from tasks.secret import Reference, SecretEnv


def join_of(
    config: Config, seed: Seed, heartbeat_port: int, kinds: Mapping[str, KindEntry], after: int, at_us: int
) -> Join:
    """Make the Join entry of a member at `seed` that offers `kinds` and whose previous incarnation was `after`."""
    return Join(
        at_us=at_us,
        member=config.node,
        host=seed.host,
        raft_port=seed.raft_port,
        http_port=seed.http_port,
        heartbeat_port=heartbeat_port,
        labels=member_labels(config.node, config.labels),
        capacity=config.capacity,
        kinds=tuple(sorted(kinds)),
        after=after,
    )


def member_labels(node: str, labels: Labels) -> Labels:
    """Return a member's labels: the configured ones, and its id as the label `node`, with which tasks are bound to it.

    >>> member_labels("node-1", (("zone", "a"),))
    (('node', 'node-1'), ('zone', 'a'))
    """
    return tuple(sorted([*(label for label in labels if label[0] != NODE_LABEL), (NODE_LABEL, node)]))


def order_of(
    run: Run,
    config: Config,
    kinds: Mapping[str, KindEntry],
    deadline_s: float,
    secrets: AttemptSecrets,
    needs: Needs,
    *,
    prepared: bool,
    uid: int | None = None,
    cluster: str = "",
    succeeded_at_us: int | None = None,
    times: OccurrenceTimes | None = None,
    traceparent: str = "",
) -> Order:
    """Make the order to execute the current attempt of `run`, with a lease until `deadline_s` on CLOCK_BOOTTIME.

    `prepared`: the attempt may use a prepared process. It uses none if it runs as another user, because such a process
    runs as the node's user. `uid` is the attempt's own user id; None: it has none. `cluster` is the cluster's id.
    `succeeded_at_us`: when a run of the task succeeded last; None: none has. `times`: those of the run's occurrence.
    `traceparent`: with which the work can add to the run's trace; "": the run is not traced.
    """
    spec = run.spec
    kind = kinds.get(spec.kind)
    return Order(
        run_id=run.run_id,
        task=run.lineage,
        kind=spec.kind,
        target=kind.target if kind else "",
        params=spec.params if run.params is None else run.params,
        attempt=run.attempts[-1].attempt,
        token=run.token,
        fire_at_us=run.nominal_us or run.fire_at_us,
        checkpoint=run.checkpoint,
        timeout_s=spec.timeout_s,
        deadline_s=deadline_s,
        secrets=secrets,
        env={**environment_for(kind, config.kind_settings), **({"TRACEPARENT": traceparent} if traceparent else {})},
        node=config.node,
        access=config.access,
        preparation=kind.preparation if kind and prepared and spec.run_as is None else "",
        action=run.action,
        args=run.args or {},
        needs=needs,
        limits=asked(spec.limits),
        run_as=spec.run_as or "",
        may_run_as=config.run_as,
        uid=uid,
        cluster=cluster,
        succeeded_at_us=succeeded_at_us,
        window_start_us=None if times is None else times.window_start_us,
        like=_like(run, spec),
        backfill=run.backfill != 0,
    )


def _like(run: Run, spec: Spec) -> dict[str, Any] | None:
    """Return the params of a sample occurrence, if those of `run` were made by a template and not given by hand."""
    by_hand = run.trigger == "manual" and not run.backfill
    if not spec.template or run.params is None or by_hand:
        return None
    return sample_beside(spec.params, run.params, OccurrenceTimes(run.nominal_us or run.fire_at_us))


def apart(run: Run, config: Config, kinds: Mapping[str, KindEntry], needs: Needs) -> bool:
    """Return whether the current attempt of `run` gets a user id of its own.

    It gets none if it uses paths on the machine, since later attempts could not change the files of earlier ones. It
    gets none either if its kind has a preparation, because prepared processes run as the node's user, and Spark needs
    a user with a name; nor if it runs a server as `nobody`.
    """
    kind = kinds.get(run.spec.kind)
    return (
        bool(config.work_uids)
        and run.spec.run_as is None
        and kind is not None
        and not kind.preparation
        and not needs.everything
        and not needs.server_user
        and not any(reach.path is not None for reach in needs.reaches)
    )


def needs_here(run: Run, config: Config, kinds: Mapping[str, KindEntry]) -> Needs:
    """Return what the current attempt of `run` needs of this machine, within the limits of the member's settings."""
    kind = kinds.get(run.spec.kind)
    if kind is None:
        return Needs()
    needs = needs_of(load_kind(kind.target), run.spec.params if run.params is None else run.params, run.lineage)
    if not needs.everything:
        return needs
    return replace(needs, roots=config.command_roots) if config.command_confined else UNCONFINED


def secrets_of(config: Config, references: Iterable[Reference]) -> AttemptSecrets:
    """Return the source of an attempt's secrets for its supervisor, with only the variables that `references` name."""
    named = tuple(dict.fromkeys(references))
    names = {one.env for one in named if isinstance(one, SecretEnv)}
    return AttemptSecrets(
        named,
        str(config.secrets_dir),
        config.env_allow,
        {name: value for name, value in config.variables.items() if name in names},
        config.own,
    )


def view_of(me: str, incarnation: int, state: State, role: RaftRole) -> View:
    """Make the heartbeat thread's view of the cluster. This process has joined with the incarnation `incarnation`."""
    peers = {
        member.id: Peer(member.incarnation, member.status, member.host, member.heartbeat_port)
        for member in state.members.values()
    }
    lead_applied = state.lead.term == role.term and state.lead.member == me
    return View(
        me=me,
        incarnation=incarnation,
        term=role.term,
        leader=role.leader,
        lead_applied=lead_applied,
        peers=peers,
        settings=state.settings,
    )
