"""The picture of a trial: a lane for each member, with who led, what was done to it, and the runs at work there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.chaos.layout import SILENT, conditions, hand_overs, leaderships, packed
from bench.chaos.observer import Sight
from bench.chaos.records import Attempt
from bench.chaos.recovery import Struck

STRIP_S: Final = 300.0
"""So much time, about, is in one strip of the picture; the strips are below one another."""

ROWS: Final = 9
"""So many runs beside one another are in a lane; more are drawn over these."""

GROUND: Final = {"up": "#f4f8f3", "draining": "#fff1c9", "down": "#d9d9de", SILENT: "#b9bac2"}
FAULTS: Final = {"kill": "#d7263d", "stop": "#f46036", "net": "#2e6fd8", "order": "#1b998b", "machine": "#8a4fbf"}
SAID: Final = {
    "kill": "killed",
    "stop": "stopped (SIGSTOP)",
    "net": "network",
    "order": "operator",
    "machine": "clock, disk, files",
}
LEADER: Final = "#e0a100"
INK: Final = "#2b2d38"


def family(kind: str) -> str:
    """Which colour a fault has.

    >>> family("cut off two"), family("kill -9 all"), family("clock an hour back")
    ('net', 'kill', 'machine')
    """
    for word, found in (
        ("kill", "kill"),
        ("SIGSTOP", "stop"),
        ("cut", "net"),
        ("packets", "net"),
        ("clock", "machine"),
        ("disk", "machine"),
        ("damaged", "machine"),
    ):
        if word in kind:
            return found
    return "order"


def draw(
    path: Path,
    title: str,
    attempts: Sequence[Attempt],
    faults: Sequence[Struck],
    sights: Mapping[str, Sequence[Sight]],
    begin_s: float,
    end_s: float,
) -> None:
    """Write the picture as a PNG. Times are CLOCK_BOOTTIME."""
    mpl.rcParams["font.family"] = "DejaVu Sans"
    strips = max(1, round((end_s - begin_s) / STRIP_S))
    length_s = (end_s - begin_s) / strips
    figure = Figure(figsize=(26, 1.1 + 4.3 * strips), dpi=110, facecolor="white")
    axes = figure.subplots(strips, 1, squeeze=False)[:, 0]
    colours = _colours(attempts)
    bars = {node: packed(one for one in attempts if one.node == node) for node in sights}
    for number, axis in enumerate(axes):
        from_s = begin_s + number * length_s
        _frame(axis, list(sights), begin_s, from_s, from_s + length_s)
        for lane, node in enumerate(sights):
            _ground(axis, lane, conditions(node, sights), leaderships(sights).get(node, []))
            _runs(axis, lane, bars[node], colours)
        _faults(axis, list(sights), faults, from_s, from_s + length_s)
        _hand_overs(axis, list(sights), bars, attempts)
    figure.suptitle(title, x=0.045, y=1 - 0.25 / (1.1 + 4.3 * strips), ha="left", fontsize=17, color=INK, weight="bold")
    _legend(figure, colours)
    figure.subplots_adjust(
        left=0.045, right=0.995, top=1 - 0.85 / (1.1 + 4.3 * strips), bottom=0.75 / (1.1 + 4.3 * strips), hspace=0.32
    )
    figure.savefig(path)


def _colours(attempts: Sequence[Attempt]) -> dict[str, Any]:
    names = sorted({"long" if one.task.startswith("long") else one.task for one in attempts})
    shades = [mpl.colormaps["tab20"](number) for number in (*range(0, 20, 2), *range(1, 20, 2))]
    return {name: shades[number % len(shades)] for number, name in enumerate(names)}


def _frame(axis: Any, nodes: Sequence[str], begin_s: float, from_s: float, to_s: float) -> None:
    axis.set_xlim(from_s, to_s)
    axis.set_ylim(len(nodes), -0.75)
    axis.set_yticks([lane + 0.5 for lane in range(len(nodes))], nodes, fontsize=11, color=INK)
    step_s = 15.0
    first = int((from_s - begin_s) // step_s)
    ticks = [begin_s + number * step_s for number in range(first, int((to_s - begin_s) // step_s) + 1)]
    axis.set_xticks(ticks, [f"{int(at - begin_s) // 60}:{int(at - begin_s) % 60:02}" for at in ticks], fontsize=9)
    axis.tick_params(length=0, pad=5, colors=INK)
    for side in axis.spines.values():
        side.set_visible(False)
    for lane in range(len(nodes) + 1):
        axis.axhline(lane, color="white", linewidth=3, zorder=2)
    axis.grid(axis="x", color="#00000012", linewidth=0.8, zorder=1)


def _ground(axis: Any, lane: int, spans: Sequence[Any], leads: Sequence[Any]) -> None:
    for span in spans:
        hatch = {"hatch": "////", "edgecolor": "#ffffff90", "linewidth": 0} if span.what == SILENT else {}
        bottom, height = (lane + 0.02, 0.96) if span.what != SILENT else (lane + 0.12, 0.86)
        axis.broken_barh(
            [(span.begin_s, span.end_s - span.begin_s)],
            (bottom, height),
            facecolors=GROUND.get(span.what, GROUND["down"]),
            zorder=0.6 if span.what == SILENT else 0.5,
            **hatch,
        )
    for span in leads:
        axis.broken_barh([(span.begin_s, span.end_s - span.begin_s)], (lane + 0.03, 0.065), facecolors=LEADER, zorder=4)


def _row(lane: int, row: int) -> float:
    return lane + 0.14 + 0.82 * (row % ROWS) / ROWS


def _runs(axis: Any, lane: int, bars: Sequence[Any], colours: Mapping[str, Any]) -> None:
    for bar in bars:
        attempt = bar.attempt
        colour = colours["long" if attempt.task.startswith("long") else attempt.task]
        y, height = _row(lane, bar.row), 0.7 / ROWS
        axis.broken_barh(
            [(attempt.begun_s, max(0.15, attempt.last_s - attempt.begun_s))],
            (y, height),
            facecolors=[colour],
            alpha=1.0 if attempt.ended else 0.75,
            zorder=3,
        )


def _faults(axis: Any, nodes: Sequence[str], faults: Sequence[Struck], from_s: float, to_s: float) -> None:
    free_s = [from_s] * 3
    per_letter_s = (to_s - from_s) / 300
    for fault in faults:
        end_s = fault.whole_s or to_s
        if end_s < from_s or fault.struck_s > to_s:
            continue
        colour = FAULTS[family(fault.kind)]
        for victim in fault.victims:
            lane = nodes.index(victim)
            axis.broken_barh(
                [(fault.struck_s, max(0.3, fault.mended_s - fault.struck_s))],
                (lane + 0.02, 0.96),
                facecolors=colour,
                alpha=0.26,
                zorder=2.5,
            )
            axis.broken_barh(
                [(fault.mended_s, end_s - fault.mended_s)],
                (lane + 0.02, 0.96),
                facecolors=colour,
                alpha=0.1,
                zorder=2.4,
            )
        if fault.struck_s < from_s:
            continue
        level = min(
            range(3),
            key=lambda one: (free_s[one] > fault.struck_s, one if free_s[one] <= fault.struck_s else free_s[one]),
        )
        at_s = max(fault.struck_s, free_s[level])
        free_s[level] = at_s + per_letter_s * (len(fault.kind) + 3)
        y = -0.1 - 0.22 * level
        axis.plot([fault.struck_s, fault.struck_s], [y, 0], color=colour, linewidth=1.1, zorder=3, clip_on=False)
        axis.text(
            at_s + per_letter_s * 0.4,
            y,
            fault.kind,
            fontsize=8.5,
            color=colour,
            va="center",
            weight="bold",
            clip_on=True,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
            zorder=6,
        )


def _hand_overs(
    axis: Any, nodes: Sequence[str], bars: Mapping[str, Sequence[Any]], attempts: Sequence[Attempt]
) -> None:
    places = {
        (bar.attempt.run, bar.attempt.token): _row(nodes.index(node), bar.row) + 0.35 / ROWS
        for node, own in bars.items()
        for bar in own
    }
    for before, after in hand_overs(attempts):
        from_y, to_y = places[before.run, before.token], places[after.run, after.token]
        axis.plot([before.last_s, after.begun_s], [from_y, to_y], color=INK, linewidth=0.9, alpha=0.75, zorder=5)
        axis.plot([after.begun_s], [to_y], marker="o", markersize=2.6, color=INK, zorder=5)


def _legend(figure: Figure, colours: Mapping[str, Any]) -> None:
    grounds = [
        Patch(facecolor=GROUND["up"], edgecolor="#c8d6c4", label="up"),
        Patch(facecolor=GROUND["draining"], label="draining"),
        Patch(facecolor=GROUND["down"], label="marked down"),
        Patch(facecolor=GROUND[SILENT], hatch="////", edgecolor="white", label="does not answer"),
        Line2D([], [], color=LEADER, linewidth=4, label="leads"),
        Line2D([], [], color=INK, linewidth=1, marker="o", markersize=3, label="run goes on elsewhere"),
    ]
    faults = [Patch(facecolor=colour, alpha=0.4, label=SAID[name]) for name, colour in FAULTS.items()]
    runs = [Patch(facecolor=colour, label=name) for name, colour in colours.items()]
    figure.legend(
        handles=[*grounds, *faults, *runs],
        loc="lower left",
        bbox_to_anchor=(0.04, 0.0),
        ncols=14,
        frameon=False,
        fontsize=9,
    )
