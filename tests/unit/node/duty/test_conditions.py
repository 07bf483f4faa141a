"""The words for how a task is: one declaration, which the API documents and the decisions use."""

import re

import pytest

from node.duty.conditions import CONDITIONS, MARKS, UNEXPECTED, held_at, remedy
from node.duty.hold import Hold
from node.http.api.placement import StandingView
from node.http.api.why import WhyView
from node.web.verdict import FindingCode


def named(text: str | None) -> set[str]:
    """The codes that a docstring lists after "`code` is"."""
    listed = re.sub(r"\([^)]*\)", "", re.split(r"`code` is (?:one of )?", " ".join((text or "").split()))[1])
    return set(re.findall(r"\w+", listed.partition(". ")[0])) - {"and", "or", "what", "holds", "it"}


def test_the_api_documents_each_code_and_no_other() -> None:
    assert named(WhyView.__doc__) == set(CONDITIONS)


@pytest.mark.parametrize("of", [Hold, StandingView])
def test_what_an_owner_says_and_a_standing_are_said_by_the_same_codes(of: type) -> None:
    assert named(of.__doc__) - {"more"} <= set(CONDITIONS)


def test_an_owner_says_what_holds_a_task_at_a_step_of_the_walk() -> None:
    assert named(Hold.__doc__) == {code for code in CONDITIONS if held_at(code)}
    assert {code for code in CONDITIONS if held_at(code)} <= UNEXPECTED


def test_a_code_of_a_later_version_has_no_step_and_a_remedy_all_the_same() -> None:
    assert (held_at("too_hot"), remedy("too_hot", member="node-1")) == (None, "see the log of node-1")


def test_the_verdict_names_what_it_finds_of_tasks_by_marks() -> None:
    assert set(MARKS) <= {code for of in FindingCode.__args__ for code in getattr(of, "__args__", (of,))}
