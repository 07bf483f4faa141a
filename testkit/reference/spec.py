"""docs/reference/spec.md: a task's definition, from the models that check it."""

from inspect import cleandoc
from typing import Final

from pydantic import BaseModel

from tasks.definition.calendars import CalendarRule
from tasks.definition.deadlines import Deadlines
from tasks.definition.limits import Limits
from tasks.definition.pools import StartRate
from tasks.definition.spec import EXAMPLE, After, At, Continuous, Cron, Every, Failover, Retry, Spec
from testkit.reference.schema import table

PATH: Final = "docs/reference/spec.md"

_HEADINGS: Final = {
    "Cron": "Cron line",
    "Every": "Interval",
    "At": "Once",
    "Continuous": "Continuous",
    "After": "Coming after others",
    "StartRate": "Rate",
    "CalendarRule": "Calendar",
    "Retry": "Retry",
    "Failover": "Failover",
    "Deadlines": "Deadlines",
    "Limits": "Limits",
}
_SCHEDULES: Final[tuple[type[BaseModel], ...]] = (Cron, Every, At, Continuous)
_POLICIES: Final[tuple[type[BaseModel], ...]] = (CalendarRule, After, StartRate, Retry, Failover, Deadlines, Limits)

_INTRODUCTION: Final = """\
# A task's definition

<!-- Made by `python -m testkit.reference` from tasks/definition/: spec.py, calendars.py, pools.py, deadlines.py and
limits.py. Edit the texts there. -->

A task is registered with `rota apply -f FILE` (YAML or JSON, one or many) or `PUT /v1/tasks/NAME`. Fields that are
left out get their default, and are stored with it. A field that is not in these tables is refused.

In YAML, `yes`, `no`, `on`, `off`, numbers and dates are not text: put them in quotes where a field wants text, for
example `group: {gpu: "yes"}`.
"""


def render() -> str:
    """The page."""
    parts = [
        _INTRODUCTION,
        f"```yaml\n{_yaml(EXAMPLE)}```\n",
        table(Spec, _HEADINGS),
        "`params` are checked by the kind: see [kinds](kinds.md).\n",
        "## Schedules\n\nA schedule has exactly one of these forms.\n",
        *(_section(model, "###") for model in _SCHEDULES),
        "## Policies\n",
        *(_section(model, "###") for model in _POLICIES),
    ]
    return "\n".join(parts)


def _section(model: type[BaseModel], level: str) -> str:
    heading = f"{level} {_HEADINGS[model.__name__]}"
    return f"{heading}\n\n{cleandoc(model.__doc__ or '')}\n\n{table(model, _HEADINGS)}"


def _yaml(value: object) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=None)
    return text
