"""Params that depend on the occurrence: `{{ ... }}` in the params of a task with `template: true`. Pure.

An expression is a time of the occurrence (`nominal`, `window_start`, `window_end`), a field of a parent's result
(`after.TASK.FIELD`), or a quoted text that stands for itself. Nothing else: a language of templates, such as Jinja's,
would run code of whoever may register a task on each member that answers, and nobody could say ahead what it gives.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgpack

from tasks.definition.cron import check_timezone
from tasks.definition.field_errors import Path, dotted

ALLOWED: Final = (
    "nominal, window_start or window_end, each with an offset (`- 1d`, `+ 2h`), a zone (`in Europe/Paris`) and a "
    'format (`| date`, `| iso`, `| unix`, `| "%Y/%m/%d"`), or after.TASK.FIELD (`| text`: as text), or a text in quotes'
)

FIELDS_BYTES_MAX: Final = 4096
"""The most bytes, packed, of all that an occurrence takes from its parents' results."""

EXPRESSIONS_MAX: Final = 1000
"""The most expressions in the params of one task, each of which may become 4 KiB."""

SAMPLE_S: Final = 400 * 86_400 + 5 * 3600 + 7 * 60 + 11
"""The seconds between two sample occurrences: each part of their dates and times differs, in any zone."""

_MARK: Final = re.compile(r"\{\{((?:[^\"'{}]|\"[^\"]*\"|'[^']*')*)\}\}")
_EXPRESSION_CHARS_MAX: Final = 400
_CACHED_CHARS_MAX: Final = 1000
_FAULTS_MAX: Final = 10
_TIME: Final = re.compile(
    r"(?P<name>nominal|window_start|window_end)"
    r"(?P<offsets>(?:\s*[+-]\s*[0-9]{1,6}\s*[smhdw])*)"
    r"(?:\s+in\s+(?P<zone>[A-Za-z0-9_+/-]+))?"
    r"(?:\s*\|\s*(?:(?P<named>date|iso|unix)|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'))?"
)
_OFFSET: Final = re.compile(r"([+-])\s*([0-9]+)\s*([smhdw])")
_FIELD: Final = re.compile(
    r"after\.(?P<task>[A-Za-z0-9][A-Za-z0-9._-]{0,127})\.(?P<field>[A-Za-z_][A-Za-z0-9_-]{0,127})"
    r"(?P<text>\s*\|\s*text)?"
)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_BY_WALL_CLOCK: Final = ("d", "w")
_SECRET: Final = ("secret", "env")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEMPLATE: Final = bytes(msgpack.packb("template")) + bytes(msgpack.packb(True))


class TemplateFault(ValueError):
    """An expression cannot be replaced for this occurrence. The message names it, its place and the reason."""


class OccurrenceTimes(NamedTuple):
    """The times of an occurrence: when it is due, and when its window begins, in microseconds since the epoch.

    `window_start_us` None: it has no window. `zone`: the time zone in which times are written.
    """

    nominal_us: int
    window_start_us: int | None = None
    zone: str = "UTC"


class _Time(NamedTuple):
    source: str
    name: str
    offsets: tuple[tuple[str, int], ...]
    zone: str | None
    form: str

    def text(self, times: OccurrenceTimes) -> str:
        at_us = times.nominal_us
        if self.name != "nominal":
            if times.window_start_us is None:
                raise TemplateFault("has no value, because this occurrence has no window: a schedule makes windows")
            at_us = times.window_start_us if self.name == "window_start" else at_us
        try:
            zone = ZoneInfo(self.zone or times.zone)
            at = (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone)
            for unit, number in self.offsets:
                step = timedelta(**{_UNITS[unit]: number})
                # A day back is the same time of the day before, even if the clocks changed in between.
                at = at + step if unit in _BY_WALL_CLOCK else (at.astimezone(UTC) + step).astimezone(zone)
            return _written(at.astimezone(UTC).astimezone(zone), self.form)
        except OverflowError:
            raise TemplateFault("is beyond the calendar") from None
        except ZoneInfoNotFoundError:
            raise TemplateFault(f"is in the time zone {self.zone or times.zone}, which this member lacks") from None


class _Field(NamedTuple):
    source: str
    task: str
    field: str
    as_text: bool


class _Quoted(NamedTuple):
    text: str


_Part = str | _Time | _Field | _Quoted


class TemplateNeeds(NamedTuple):
    """What the params of a task need of an occurrence.

    `window`: an expression that needs a window; "": none does. `fields`: each parent with the fields of its result.
    """

    window: str
    fields: tuple[tuple[str, tuple[str, ...]], ...]

    def fields_of(self, parent: str) -> tuple[str, ...]:
        """Return the fields of a parent's result that are needed."""
        return next((fields for name, fields in self.fields if name == parent), ())


def template_of(packed: bytes) -> TemplateNeeds | None:
    """Return what a spec that `Spec.pack` packed needs of an occurrence; None: it has no template.

    It costs next to nothing for a spec without one.

    >>> from tasks.definition.spec import Spec
    >>> params = {"argv": ["load", "{{ window_start | date }}", "{{ after.a.b.rows }}"]}
    >>> spec = Spec(name="a", kind="command", params=params, template=True, schedule={"cron": "@daily"}, after="a.b")
    >>> template_of(spec.pack())
    TemplateNeeds(window='{{ window_start | date }}', fields=(('a.b', ('rows',)),))
    >>> template_of(Spec(name="a", kind="command", params=params).pack())
    """
    return _needs(packed) if _TEMPLATE in packed else None


@lru_cache(maxsize=4096)
def _needs(packed: bytes) -> TemplateNeeds | None:
    raw = msgpack.unpackb(packed)
    return needs_of_params(raw.get("params", {})) if raw.get("template") is True else None


def needs_of_params(params: Mapping[str, Any]) -> TemplateNeeds:
    """Return what the expressions in `params` need of an occurrence. What is no expression is left out."""
    window = ""
    fields: dict[str, dict[str, None]] = {}
    for _, text in _texts(params):
        for part in _parts(text)[0]:
            match part:
                case _Field(task=task, field=field):
                    fields.setdefault(task, {})[field] = None
                case _Time(name=name, source=source) if name != "nominal":
                    window = window or source
    return TemplateNeeds(window, tuple((task, tuple(sorted(fields[task]))) for task in sorted(fields)))


def template_faults(params: Mapping[str, Any], parents: tuple[str, ...], *, windows: bool) -> list[tuple[Path, str]]:
    """Return what is wrong with the expressions in `params`: the path in them, and a clause that follows it.

    `parents`: the tasks that the task comes after. `windows`: whether its occurrences may have windows.

    >>> template_faults({"a": ["{{ now }}"]}, (), windows=True)[0][0]
    ('a', 0)
    """
    found: list[tuple[Path, str]] = []
    count = 0
    for path, text in _texts(params):
        parts, faults = _parts(text)
        found += [(path, fault) for fault in faults]
        count += sum(not isinstance(part, str) for part in parts)
        for part in parts:
            match part:
                case _Field(task=task) if task not in parents:
                    found.append((path, f"{part.source} names {task}, and this task does not come `after` it"))
                case _Time(name=name) if name != "nominal" and not windows:
                    found.append((path, f"{part.source} needs a window, which only a cron line or `every_s` makes"))
        if _is_secret(params, path) and not all(isinstance(part, str) for part in parts):
            found.append((path, "names a secret, and so cannot depend on the occurrence"))
    if count > EXPRESSIONS_MAX:
        found.append(((), f"have {count} expressions, and {EXPRESSIONS_MAX} at most are allowed"))
    return found


def substituted(
    params: Mapping[str, Any], times: OccurrenceTimes, fields: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return `params` with each expression replaced. `fields`: the fields of each parent's result, by its name.

    A text that is one `after.TASK.FIELD` becomes that field's value; all else stays text. Raises `TemplateFault`.

    >>> params = {"file": "{{ nominal - 1d | date }}.csv", "rows": "{{ after.b.rows }}"}
    >>> substituted(params, OccurrenceTimes(1_795_240_500_000_000), {"b": {"rows": 7}})
    {'file': '2026-11-20.csv', 'rows': 7}
    """
    made: dict[str, Any] = _replaced(params, (), times, fields)
    return made


def shown_params(params: Mapping[str, Any], times: OccurrenceTimes) -> dict[str, Any]:
    """Like `substituted`, but leaves what comes from parents' results as it is. Raises `TemplateFault`."""
    made: dict[str, Any] = _replaced(params, (), times, None)
    return made


def sample_params(params: Mapping[str, Any], times: OccurrenceTimes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Like `substituted`, for two sample occurrences, in which all that may differ between occurrences does.

    Each field of a parent's result is the text "1" in the first, and the number 2 in the second. What is no expression
    stays as it is: `template_faults` tells of it.
    """
    start_us = times.nominal_us if times.window_start_us is None else times.window_start_us
    later_us = SAMPLE_S * 1_000_000
    one = times._replace(window_start_us=start_us)
    other = times._replace(nominal_us=times.nominal_us + later_us, window_start_us=start_us + later_us)
    return _replaced(params, (), one, "1"), _replaced(params, (), other, 2)


def places_of_fields(params: Mapping[str, Any]) -> list[Path]:
    """Return the places in `params` that become a field of a parent's result, of a type that is not known before."""
    found = ((path, _parts(text)[0]) for path, text in _texts(params))
    return [path for path, (first, *rest) in found if not rest and isinstance(first, _Field) and not first.as_text]


def sample_beside(params: Mapping[str, Any], made: Mapping[str, Any], times: OccurrenceTimes) -> dict[str, Any]:
    """Return the params of a sample occurrence, to compare those `made` for a real one with.

    What is one field of a parent's result, and nothing else, is as in `made`, since its type is not known before.

    >>> definition = {"source": "/in/{{ after.b.day | text }}.csv", "rows": "{{ after.b.rows }}"}
    >>> sample_beside(definition, {"source": "/in/../etc/a.csv", "rows": 7}, OccurrenceTimes(0))
    {'source': '/in/1.csv', 'rows': 7}
    """
    sample, _ = sample_params(params, times)
    for *above, last in places_of_fields(params):
        inner: Any = sample
        real: Any = made
        for name in above:
            inner, real = inner[name], real[name]
        inner[last] = real[last]
    return sample


def _replaced(
    value: Any, path: Path, times: OccurrenceTimes, fields: Mapping[str, Mapping[str, Any]] | str | int | None
) -> Any:
    if isinstance(value, str):
        return _text(value, path, times, fields)
    if isinstance(value, Mapping):
        return {name: _replaced(inner, (*path, name), times, fields) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, (*path, place), times, fields) for place, inner in enumerate(value)]
    return value


def _text(
    text: str, path: Path, times: OccurrenceTimes, fields: Mapping[str, Mapping[str, Any]] | str | int | None
) -> Any:
    if "{{" not in text:
        return text
    values: list[Any] = []
    parts, _ = _parts(text)
    for part in parts:
        match part:
            case str():
                values.append(part)
            case _Quoted(text=said):
                values.append(said)
            case _Time():
                try:
                    values.append(part.text(times))
                except TemplateFault as fault:
                    raise TemplateFault(f"{dotted(('params', *path))}: {part.source} {fault}") from None
            case _Field() if fields is None:
                values.append(part.source)
            case _Field() if not isinstance(fields, Mapping):
                values.append(_as_text(fields) if part.as_text else fields)
            case _Field(task=task, field=field):
                of_parent = fields.get(task, {})
                if field not in of_parent:
                    why = f"has no value: what {task} left for this run has no field {field!r}"
                    raise TemplateFault(f"{dotted(('params', *path))}: {part.source} {why}")
                values.append(_as_text(of_parent[field]) if part.as_text else of_parent[field])
    return values[0] if len(values) == 1 else "".join(map(_as_text, values))


def _as_text(value: Any) -> str:
    """Return a field of a result as text: text as it is, all else as JSON.

    >>> _as_text(True), _as_text(7), _as_text("a"), _as_text(["é"])
    ('true', '7', 'a', '["é"]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each text with an expression in it, or what looks like one, and its path."""
    if isinstance(value, str):
        if "{{" in value:
            yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(inner, (*path, place))


def _is_secret(params: Any, path: Path) -> bool:
    """Whether a place is the name in a reference to a secret, as `tasks.secret.Reference` has it."""
    if not path or path[-1] not in _SECRET:
        return False
    for part in path[:-1]:
        params = params[part]
    return isinstance(params, Mapping) and len(params) == 1


def _parts(text: str) -> tuple[tuple[_Part, ...], tuple[str, ...]]:
    """Cut a text into what stays as it is and expressions. Returns also what is wrong; that stays as it is."""
    return _cached_parts(text) if len(text) <= _CACHED_CHARS_MAX else _read_parts(text)


@lru_cache(maxsize=4096)
def _cached_parts(text: str) -> tuple[tuple[_Part, ...], tuple[str, ...]]:
    return _read_parts(text)


def _read_parts(text: str) -> tuple[tuple[_Part, ...], tuple[str, ...]]:
    """Read a text once, from its beginning to its end: what is no expression ends it, however long it is."""
    parts: list[_Part] = []
    faults: list[str] = []
    end = 0
    while (start := text.find("{{", end)) >= 0:
        if start > end:
            parts.append(text[end:start])
            end = start
        found = _MARK.match(text, start, start + _EXPRESSION_CHARS_MAX)
        if found is None:
            faults.append("has {{ without }} soon after it: a {{ of the text itself is written {{ '{{' }}")
            break
        part = _expression(found[1].strip(), found[0])
        if isinstance(part, str):
            if len(faults) < _FAULTS_MAX:
                faults.append(part)
            part = found[0]
        parts.append(part)
        end = found.end()
    if rest := text[end:]:
        parts.append(rest)
    return tuple(parts), tuple(faults)


def _expression(said: str, source: str) -> _Part:
    """Read what stands between the braces. Returns a text that describes the fault if it is not allowed."""
    if len(said) > 1 and said[0] == said[-1] and said[0] in "\"'" and said[0] not in said[1:-1]:
        return _Quoted(said[1:-1])
    if (found := _FIELD.fullmatch(said)) is not None:
        return _Field(source, found["task"], found["field"], found["text"] is not None)
    if (found := _TIME.fullmatch(said)) is None:
        return f"{source} is not known here; allowed is {ALLOWED}"
    if (zone := found["zone"]) is not None:
        try:
            check_timezone(zone)
        except ValueError as error:
            return f"{source}: {error}"
    offsets = tuple(
        (one[3], int(one[2]) if one[1] == "+" else -int(one[2])) for one in _OFFSET.finditer(found["offsets"])
    )
    form = found["named"] or found["double"] or found["single"] or "iso"
    if found["named"] is None and (unknown := [one for one in _codes(form) if one not in _CODES]):
        return f"{source}: {unknown[0]} is not one of {' '.join(_CODES)}"
    return _Time(source, found["name"], offsets, zone, form)


def _codes(form: str) -> list[str]:
    return re.findall(r"%.?", form)


_CODES: Final = ("%Y", "%m", "%d", "%H", "%M", "%S", "%y", "%j", "%G", "%V", "%u", "%z", "%%")
"""The parts of a format, as of strftime: those that no machine's locale changes."""


def _written(at: datetime, form: str) -> str:
    """Write a time in a format.

    >>> at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    >>> [_written(at, form) for form in ("date", "iso", "unix", "%Y/%j %G-W%V-%u %H%M%S%z %%")]
    ['2026-01-02', '2026-01-02T03:04:05Z', '1767323045', '2026/002 2026-W01-5 030405+0000 %']
    """
    if form == "date":
        form = "%Y-%m-%d"
    elif form == "iso":
        return at.isoformat().replace("+00:00", "Z")
    elif form == "unix":
        return str((at - _EPOCH) // timedelta(seconds=1))
    year, week, day = at.isocalendar()
    values = {
        "%Y": f"{at.year:04d}",
        "%m": f"{at.month:02d}",
        "%d": f"{at.day:02d}",
        "%H": f"{at.hour:02d}",
        "%M": f"{at.minute:02d}",
        "%S": f"{at.second:02d}",
        "%y": f"{at.year % 100:02d}",
        "%j": f"{at.timetuple().tm_yday:03d}",
        "%G": f"{year:04d}",
        "%V": f"{week:02d}",
        "%u": str(day),
        "%z": at.strftime("%z"),
        "%%": "%",
    }
    return re.sub(r"%.", lambda found: values[found[0]], form)
