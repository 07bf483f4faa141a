"""What becomes of an occurrence of a task once all tasks that it comes after have ended (pure).

Each parent's run for the occurrence ends in one of three ways: it succeeded; it failed for good; or it did not run, or
not to its end (skipped, missed, cancelled, or passed over because of its own parents).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.definition.run import RunState
    from tasks.definition.spec import After

ParentEnd = Literal["succeeded", "failed", "skipped"]
"""How a parent's run for an occurrence ended."""

Consequence = Literal["due", "upstream_failed", "upstream_skipped", "not_needed"]
"""What becomes of the occurrence: it is due, or it ends without a run. `not_needed`: it was to run after a failure."""

_FAILED: Final[frozenset["RunState"]] = frozenset(
    {"failed", "timed_out", "abandoned", "upstream_failed", "upstream_late"}
)


def end_of(state: "RunState") -> ParentEnd:
    """Return how a run that ended in `state` counts for the tasks after it.

    >>> end_of("timed_out"), end_of("upstream_late"), end_of("cancelled"), end_of("not_needed")
    ('failed', 'failed', 'skipped', 'skipped')
    """
    if state == "succeeded":
        return "succeeded"
    return "failed" if state in _FAILED else "skipped"


def consequence(after: "Sequence[After]", ends: Mapping[str, ParentEnd]) -> Consequence:
    """Decide on an occurrence from the ends of all its parents, by name. A failure goes before all else.

    >>> from tasks.definition.spec import After
    >>> after = [After(task="a"), After(task="b", on="failed")]
    >>> consequence(after, {"a": "succeeded", "b": "failed"}), consequence(after, {"a": "succeeded", "b": "succeeded"})
    ('due', 'not_needed')
    >>> consequence(after, {"a": "skipped", "b": "failed"}), consequence(after, {"a": "failed", "b": "skipped"})
    ('upstream_skipped', 'upstream_failed')
    """
    if any(one.on == "succeeded" and ends[one.task] == "failed" for one in after):
        return "upstream_failed"
    if any(one.on != "failed" and ends[one.task] == "skipped" for one in after):
        return "upstream_skipped"
    if any(one.on == "failed" and ends[one.task] != "failed" for one in after):
        return "not_needed"
    return "due"
