"""Each view of the API against what it shows: a field that a source gains is shown, or is named here with a reason."""

from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from node.duty.hold import Hold
from node.duty.standing import TaskStanding
from node.duty.what_if import InterruptedRun, MajorityOutlook, UnownedTask
from node.duty.why_values import Why, WhyStep
from node.http.api.bootstraps import BootstrapView
from node.http.api.channels import ChannelView, LastMessageView
from node.http.api.cluster import MismatchView, SettingsView
from node.http.api.members import MemberView
from node.http.api.openapi import _Schemas
from node.http.api.peer import PeerHoldView, PeerMembersView, PeerSeedView
from node.http.api.placement import StandingView
from node.http.api.runs import AttemptView, ProgressView, RunView
from node.http.api.task_shapes import BreachView, HeldView, LastView, RegisteredView
from node.http.api.what_if import InterruptedView, MajorityView, UnownedView
from node.http.api.why import WhyStepView, WhyView
from node.http.app import ENDPOINTS
from node.identity.mismatches import Mismatch
from node.peer.bootstrap import Bootstrap
from node.peer.protocol import Roster, RunProgress
from node.peer.vitals import MemberVitals, PeerVitalsView
from node.state.entries import Seed
from node.state.outbox import ChannelRow, TellingResult
from node.state.value import Attempt, Breach, EndedRun, Member, Outcome, Run, Settings, TaskRow
from tasks.definition.spec import Spec


@dataclass(frozen=True)
class Shown:
    """A view and its sources.

    renamed: the view's field, and the source's that it shows. computed: the view's own. kept_back: the source's that
    are not shown, each with its reason.
    """

    view: Any
    sources: tuple[Any, ...]
    renamed: dict[str, str] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    kept_back: dict[str, str] = field(default_factory=dict)


_CONTROL = "what the cluster decides by, and nobody asks for"
_WHOSE = "the request or the place in the answer says whose it is"
TABLE = [
    Shown(
        RegisteredView,
        (Spec, TaskRow),
        renamed={"late": "breaches", "registered_at": "registered_at_us"},
        computed=frozenset({"next_fire_at", "next_held"}),
        kept_back={
            "spec_packed": "shown as the fields of the spec",
            "placing": "a part of the spec",
            **dict.fromkeys(
                ("order", "since_us", "through_us", "requests", "series", "succeeded_at_us", "endings"), _CONTROL
            ),
            **dict.fromkeys(("failing", "judged_us", "unmet_us", "after_us"), _CONTROL),
        },
    ),
    Shown(LastView, (Outcome,), kept_back={"took_us": "a run has `took_s`"}),
    Shown(BreachView, (Breach,), renamed={"due_at": "due_us"}, kept_back={"undecided": _CONTROL}),
    Shown(
        SettingsView,
        (Settings,),
        renamed={"balance_slack": "balance_slack_milli"},
        kept_back={"pool_sets": "each pool has its `set`"},
    ),
    Shown(
        MemberView,
        (Member,),
        renamed={"max_runs": "places"},
        computed=frozenset({"url", "load", "running", "bootstrap"}),
        kept_back={
            **dict.fromkeys(("host", "http_port"), "in `url`"),
            **dict.fromkeys(("raft_port", "heartbeat_port"), "of members only"),
            **dict.fromkeys(("drained", "leaving"), "in `status`"),
        },
    ),
    Shown(MismatchView, (Mismatch,), computed=frozenset({"detail"}), kept_back={"other": "in `detail`"}),
    Shown(
        AttemptView,
        (Attempt,),
        kept_back={"incarnation": _CONTROL, "claimed_at_us": "of the latest attempt, the run has it"},
    ),
    Shown(
        RunView,
        (Run, EndedRun),
        renamed={"due_at": "due_us", "rerun": "generation"},
        computed=frozenset(
            {"kind", "attempt", "claimed_at", "started_at", "took_s", "progress", "frozen_since"}
            | {"count", "last_fire_at", "blocked_by", "degraded"}
        ),
        kept_back={
            "spec_packed": "the task's definition, of which `kind` is shown",
            "run": "its fields are",
            "series": "`count`, `last_fire_at` and `blocked_by` are of it",
            **dict.fromkeys(("created_at_us", "incarnation", "failures", "orphanings"), _CONTROL),
            **dict.fromkeys(("params_bytes", "aways", "nominal_us", "fields", "offered_us"), _CONTROL),
        },
    ),
    Shown(ProgressView, (RunProgress,), kept_back={"frozen_since_us": "the run has it"}),
    Shown(StandingView, (TaskStanding,)),
    Shown(WhyView, (Why,), computed=frozenset({"task", "sentence", "late"})),
    Shown(WhyStepView, (WhyStep,)),
    Shown(
        HeldView,
        (Why,),
        kept_back=dict.fromkeys(("remedy", "run_id", "member", "runs", "steps"), "`GET /v1/tasks/{name}/why` has it"),
    ),
    Shown(MajorityView, (MajorityOutlook,), computed=frozenset({"left"})),
    Shown(UnownedView, (UnownedTask,)),
    Shown(InterruptedView, (InterruptedRun,), renamed={"from": "source", "to": "target"}),
    Shown(
        ChannelView,
        (ChannelRow,),
        renamed={
            "definition": "packed",
            "failures": "tries",
            "retry_at": "again_us",
            "waiting": "notices",
            "dropped": "lost",
            "dropped_successes": "lost_successes",
            "digest_since": "digest_us",
        },
        computed=frozenset({"sender", "waiting_since", "digest_next"}),
        kept_back=dict.fromkeys(
            ("dropped", "dropped_successes", "failed", "failed_urgency", "notices_bytes", "digest_index"), _CONTROL
        ),
    ),
    Shown(LastMessageView, (TellingResult,), renamed={"node": "member"}),
    Shown(
        BootstrapView,
        (Bootstrap,),
        renamed={"progress": "indexes"},
        computed=frozenset({"state", "runs", "runs_per_s"}),
        kept_back={"member": _WHOSE, "indexes_total": "in `progress`", "fetching_s": "in `runs_per_s`"},
    ),
    Shown(PeerHoldView, (Hold,)),
    Shown(PeerSeedView, (Seed,)),
    Shown(PeerVitalsView, (MemberVitals,)),
    Shown(PeerMembersView, (Roster,)),
]


@pytest.mark.parametrize("shown", TABLE, ids=lambda shown: shown.view.__name__)
def test_a_view_shows_each_field_of_its_sources_by_the_same_name_and_type(shown: Shown) -> None:
    view = get_type_hints(shown.view)
    source: dict[str, Any] = {}
    for one in shown.sources:
        source |= _hints(one)
    by_view = {name: shown.renamed.get(name) or _source_name(name, source) for name in view}
    missing = {name for name, of in by_view.items() if of not in source} - shown.computed
    assert missing == set(), "shown, and of no source"
    taken = {of for name, of in by_view.items() if name not in shown.computed}
    assert set(source) - taken == set(shown.kept_back) - taken, "neither shown nor kept back with a reason"
    for name, of in by_view.items():
        if name not in shown.computed and name not in shown.renamed:
            assert _fits(view[name], source[str(of)]), f"{name}: {view[name]} does not show {source[str(of)]}"


def test_the_schema_of_a_task_has_every_field_of_its_definition() -> None:
    schemas = _Schemas(ENDPOINTS).definitions
    for name in ("TaskView", "ListedTaskView", "ChangedTaskView"):
        assert set(Spec.model_fields) <= set(schemas[name]["required"]), name


def _hints(of: Any) -> dict[str, Any]:
    hints = get_type_hints(of)
    names = of.model_fields if hasattr(of, "model_fields") else getattr(of, "_fields", None)
    return {name: hints[name] for name in names or [one.name for one in fields_of(of)]}


def _source_name(name: str, source: dict[str, Any]) -> str | None:
    for one in (name, f"{name}_us", f"{name.removesuffix('_at')}_us"):
        if one in source:
            return one
    return None


_PLAIN = (bool, int, float, str)


def _fits(view: Any, source: Any) -> bool:
    """Whether the view's type can show the source's. A time is an int there and text here; a model is an object."""
    here, there = _scalars(view), _scalars(source)
    if here == {str} and there == {int}:
        return True  # microseconds since the epoch
    return not here or not there or there <= here


def _scalars(of: Any) -> set[type]:
    """The plain types that a type holds at its top, None aside."""
    if of in _PLAIN:
        return {of}
    if get_origin(of) in (Union, UnionType):
        return set().union(*(_scalars(one) for one in get_args(of)))
    if str(get_origin(of)) == "typing.Literal":
        return {type(one) for one in get_args(of)}
    return set()
