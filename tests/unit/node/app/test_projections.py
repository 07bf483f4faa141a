"""What a member makes of a claimed run and of its own settings for the runner."""

from node.app.config import load
from node.app.projections import order_of
from node.state.value import Attempt, Run
from tasks.installed_kinds import KindEntry
from tasks.needs import Needs
from tasks.spec import Spec

ENVIRON = {
    "ROTA_NODE": "node-1",
    "ROTA_MEMBERS": "node-1=127.0.0.1:7001:8101",
    "ROTA_SECRET": "0123456789abcdef",
    "ROTA_ENGINE": "local[2]",
    "ROTA_OTHER": "x",
}


def test_a_worker_gets_the_settings_that_its_kind_asks_for_and_no_other() -> None:
    asked = {"RUN_ENGINE": "ROTA_ENGINE", "RUN_UNSET": "ROTA_UNSET", "RUN_SECRET": "ROTA_SECRET"}
    kinds = {"load": KindEntry("load", "module:Load", asked)}
    packed = Spec(name="nightly", kind="load").pack()
    attempt = Attempt(1, "node-1", 1, 7, "claimed", 0)
    run = Run("nightly~1", "nightly", "schedule", 0, packed, "claimed", 0, token=7, attempts=(attempt,))
    order = order_of(run, load(ENVIRON), kinds, 1.0, Needs(), prepared=True)
    assert order.env == {"RUN_ENGINE": "local[2]"}
    assert order_of(run, load(ENVIRON), {}, 1.0, Needs(), prepared=True).env == {}
