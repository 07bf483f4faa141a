"""What a member makes of a claimed run and of its own settings for the runner."""

from dataclasses import replace
from typing import Any

import pytest

from node.app.config import load_config
from node.app.projections import apart, order_of, secrets_of
from node.execution.attempt_secrets import NO_SECRETS
from node.execution.order import AttemptLimits, Brief, unpack_brief
from node.state.value import Attempt, Run
from tasks.definition.spec import After, Spec
from tasks.installed_kinds import KindEntry
from tasks.needs import Needs
from tasks.reach import Reach
from tasks.secret import Reference, SecretEnv, SecretFile

ENVIRON = {
    "ROTA_NODE": "node-1",
    "ROTA_MEMBERS": "node-1=127.0.0.1:7001:8101",
    "ROTA_SECRET": "0123456789abcdef",
    "ROTA_ENGINE": "local[2]",
    "ROTA_OTHER": "x",
}


def claimed(spec: Spec) -> Run:
    attempt = Attempt(1, "node-1", 1, 7, "claimed", 0)
    return Run("n~1", spec.name, "schedule", 0, spec.pack(), "claimed", 0, token=7, attempts=(attempt,))


def test_a_worker_gets_the_settings_that_its_kind_asks_for_and_no_other() -> None:
    asked = {"RUN_ENGINE": "ROTA_ENGINE", "RUN_UNSET": "ROTA_UNSET", "RUN_SECRET": "ROTA_SECRET"}
    kinds = {"load": KindEntry("load", "module:Load", asked)}
    run = claimed(Spec(name="nightly", kind="load"))
    order = order_of(run, load_config(ENVIRON), kinds, 1.0, NO_SECRETS, Needs(), prepared=True)
    assert order.env == {"RUN_ENGINE": "local[2]"}
    assert order_of(run, load_config(ENVIRON), {}, 1.0, NO_SECRETS, Needs(), prepared=True).env == {}


def test_an_attempt_is_given_the_variables_that_its_params_name_and_that_are_allowed() -> None:
    config = load_config(
        {**ENVIRON, "ROTA_ENV_ALLOW": "PGPASSWORD,API_KEY,UNSET", "PGPASSWORD": " hunter22 ", "API_KEY": "y"}
    )
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


def test_what_a_task_may_run_as_is_the_members_to_say() -> None:
    kinds = {"load": KindEntry("load", "module:Load", preparation="module:prepare")}
    config = load_config(ENVIRON | {"ROTA_RUN_AS": "deploy, postgres"})
    order = order_of(
        claimed(Spec(name="n", kind="load", run_as="deploy")), config, kinds, 1.0, NO_SECRETS, Needs(), prepared=True
    )
    assert (order.run_as, order.may_run_as, order.preparation) == ("deploy", ("deploy", "postgres"), "")
    order = order_of(claimed(Spec(name="n", kind="load")), config, kinds, 1.0, NO_SECRETS, Needs(), prepared=True)
    assert (order.run_as, order.preparation, order.backfill) == ("", "module:prepare", False)
    backfilled = replace(claimed(Spec(name="n", kind="load")), backfill=7)
    assert order_of(backfilled, config, kinds, 1.0, NO_SECRETS, Needs(), prepared=True).backfill
    packed = Brief(order, AttemptLimits(), "/data").pack()
    assert unpack_brief(packed).order == order


def test_what_a_template_makes_is_compared_with_a_sample_and_what_is_given_by_hand_is_not() -> None:
    params: dict[str, Any] = {"source": "/in/{{ after.b.day | text }}.csv"}
    made = {"source": "/in/../etc/a.csv"}
    run = replace(
        claimed(Spec(name="n", kind="load", template=True, after=(After(task="b"),), params=params)), params=made
    )

    def like(run: Run) -> object:
        return order_of(run, load_config(ENVIRON), {}, 1.0, NO_SECRETS, Needs(), prepared=True).like

    for one in (replace(run, trigger="after"), run, replace(run, trigger="manual", backfill=7)):
        assert like(one) == {"source": "/in/1.csv"}
    assert like(replace(run, trigger="manual")) is None
    assert like(claimed(Spec(name="n", kind="load"))) is None


PATHLESS = Needs(reaches=(Reach("to", "destination", "s3://b", addresses=("s3://b",)),))


@pytest.mark.parametrize(
    ("gets", "spec", "needs"),
    [
        (True, Spec(name="n", kind="copy"), PATHLESS),
        (False, Spec(name="n", kind="copy"), Needs(reaches=(Reach("from", "source", "/srv", "/srv"),))),
        (False, Spec(name="n", kind="copy"), Needs(everything=True)),
        (False, Spec(name="n", kind="copy", run_as="deploy"), PATHLESS),
        (False, Spec(name="n", kind="load"), PATHLESS),
        (False, Spec(name="n", kind="unknown"), PATHLESS),
    ],
)
def test_an_attempt_has_a_number_of_its_own_only_where_no_other_needs_what_it_writes(
    gets: bool, spec: Spec, needs: Needs
) -> None:
    kinds = {"load": KindEntry("load", "m:L", preparation="m:prepare"), "copy": KindEntry("copy", "m:C")}
    numbered = load_config(ENVIRON | {"ROTA_WORK_UIDS": "70000-79999"})
    assert apart(claimed(spec), numbered, kinds, needs) is gets
    assert not apart(claimed(spec), load_config(ENVIRON), kinds, needs)
