"""What a member makes of its configuration: the entry with which it joins, and the orders to its runner. Pure."""

from collections.abc import Mapping

from node.config import Config
from node.execution.order import Order
from node.state.entries import Join, Seed
from node.state.value import Run
from tasks.kinds import KindEntry


def join_of(
    config: Config, seed: Seed, heartbeat_port: int, kinds: Mapping[str, KindEntry], after: int, at_us: int
) -> Join:
    """The Join of a member that is at `seed`, offers `kinds`, and was in incarnation `after` before."""
    return Join(
        at_us,
        config.node,
        seed.host,
        seed.raft_port,
        seed.http_port,
        heartbeat_port,
        config.labels,
        config.capacity,
        tuple(sorted(kinds)),
        after,
    )


def order_of(run: Run, config: Config, kinds: Mapping[str, KindEntry], deadline_s: float) -> Order:
    """The attempt that holds `run`, under a lease until `deadline_s` on CLOCK_BOOTTIME."""
    spec = run.spec
    kind = kinds.get(spec.kind)
    return Order(
        run.run_id,
        run.task,
        spec.kind,
        kind.target if kind else "",
        spec.params if run.params is None else run.params,
        run.attempts[-1].attempt,
        run.token,
        run.fire_at_us,
        run.checkpoint,
        spec.timeout_s,
        deadline_s,
        str(config.secrets_dir),
        config.env_allow,
        {"RUN_SPARK_MASTER": config.spark_master},
    )
