"""What a member makes of a claimed run and of its own settings for the runner."""

from node.app.config import load
from node.app.projections import order_of, secrets_of
from node.execution.attempt_secrets import NO_SECRETS
from node.state.value import Attempt, Run
from tasks.installed_kinds import KindEntry
from tasks.needs import Needs
from tasks.secret import Reference, SecretEnv, SecretFile
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
    order = order_of(run, load(ENVIRON), kinds, 1.0, NO_SECRETS, Needs(), prepared=True)
    assert order.env == {"RUN_ENGINE": "local[2]"}
    assert order_of(run, load(ENVIRON), {}, 1.0, NO_SECRETS, Needs(), prepared=True).env == {}


def test_an_attempt_is_given_the_variables_that_its_params_name_and_that_are_allowed() -> None:
    config = load({**ENVIRON, "ROTA_ENV_ALLOW": "PGPASSWORD,API_KEY,UNSET", "PGPASSWORD": " hunter22 ", "API_KEY": "y"})
    assert config.variables == {"PGPASSWORD": " hunter22 ", "API_KEY": "y"}, "exactly as they are, and no other"
    named: list[Reference] = [
        SecretEnv(env="PGPASSWORD"),
        SecretFile(secret="key"),
        SecretEnv(env="HOME"),
        SecretEnv(env="PGPASSWORD"),
    ]
    secrets = secrets_of(config, named)
    assert secrets.variables == {"PGPASSWORD": " hunter22 "}
    assert secrets.references == tuple(named[:3])
    assert secrets.value(named[0]) == " hunter22 "
