"""The layout of a graph of tasks: a column for each layer, boxes ordered so that few lines cross. Pure."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from node.duty.task_graph import TaskEdge, TaskGraph

BOX_WIDTH: Final = 206
BOX_HEIGHT: Final = 58
COLUMN_GAP: Final = 54
ROW_GAP: Final = 12
PASSING: Final = 10
MARGIN: Final = 8
"""Sizes in pixels: a box; the gaps between columns and between rows; the room for a line that passes a column; the
margin around all."""

SWEEPS: Final = 6
"""How often the columns are ordered anew, from the left and from the right in turn."""

PASSINGS_MAX: Final = 2000
"""With more lines that pass columns than this, none is given room, and lines may run behind boxes."""


@dataclass(frozen=True, slots=True)
class TaskBox:
    """The box of a task; `x` and `y` are its upper left corner, in pixels."""

    task: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """The line of an edge, as an SVG path; `end` is where its arrow's tip is, in pixels. Both are moved down by `y`."""

    edge: TaskEdge
    path: str
    end: tuple[float, float]
    y: float = 0


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """The whole drawing; its width and height are in pixels."""

    width: float
    height: float
    boxes: tuple[TaskBox, ...]
    lines: tuple[EdgeLine, ...]


def folded(graph: TaskGraph, own: str, first: Container[str], most: int) -> TaskGraph:
    """Return a graph with `most` tasks in each layer at most: `own`, then those in `first`, then others."""
    kept: dict[str, int] = {}
    room: Counter[int] = Counter()
    for task, layer in sorted(graph.layers.items(), key=lambda item: (item[0] != own, item[0] not in first)):
        room[layer] += 1
        if room[layer] <= most:
            kept[task] = layer
    return TaskGraph(
        {task: layer for task, layer in graph.layers.items() if task in kept},
        tuple(edge for edge in graph.edges if edge.parent in kept and edge.child in kept),
        graph.left_out + len(graph.layers) - len(kept),
    )


@dataclass(frozen=True, slots=True)
class _Pass:
    """Where a line passes a column on its way: the edge's number, and the layer."""

    edge: int
    layer: int


_Item = str | _Pass


def drawing_of(graph: TaskGraph) -> GraphDrawing:
    """Lay out a graph: parents to the left of their children, and each column ordered by where its neighbours are."""
    columns: list[list[_Item]] = [[] for _ in range(max(graph.layers.values(), default=-1) + 1)]
    for task, layer in graph.layers.items():
        columns[layer].append(task)
    ways = _ways(graph)
    before: dict[_Item, list[_Item]] = {}
    after: dict[_Item, list[_Item]] = {}
    for way in ways:
        for one in way[1:-1]:
            assert isinstance(one, _Pass)
            columns[one.layer].append(one)
        for one, following in pairwise(way):
            after.setdefault(one, []).append(following)
            before.setdefault(following, []).append(one)
    for sweep in range(SWEEPS):
        _order(columns, before) if sweep % 2 == 0 else _order(columns[::-1], after)
    heights = [sum(map(_height, column)) + ROW_GAP * (len(column) - 1) for column in columns]
    tallest = max(heights, default=0.0)
    tops: dict[_Item, float] = {}
    for column, height in zip(columns, heights, strict=True):
        y = MARGIN + (tallest - height) / 2
        for item in column:
            tops[item] = round(y, 1)
            y += _height(item) + ROW_GAP
    return GraphDrawing(
        width=2 * MARGIN + max(0, len(columns) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP),
        height=2 * MARGIN + tallest,
        boxes=tuple(TaskBox(task, _x(layer), tops[task]) for task, layer in graph.layers.items()),
        lines=tuple(_line(graph.layers, edge, way, tops) for edge, way in zip(graph.edges, ways, strict=True)),
    )


def stacked(graph: TaskGraph) -> GraphDrawing:
    """Lay out a graph whose tasks are not all linked: each part that is by itself below the one before, by name."""
    drawings = [drawing_of(part) for part in linked_parts(graph)]
    y, boxes, lines = 0.0, list[TaskBox](), list[EdgeLine]()
    for one in drawings:
        boxes += [TaskBox(box.task, box.x, round(box.y + y, 1)) for box in one.boxes]
        lines += [EdgeLine(line.edge, line.path, line.end, round(y, 1)) for line in one.lines]
        y += one.height
    return GraphDrawing(max((one.width for one in drawings), default=0.0), y, tuple(boxes), tuple(lines))


def linked_parts(graph: TaskGraph) -> list[TaskGraph]:
    """Split a graph into parts whose tasks are linked through one another, by the name of each part's first task."""
    part_of: dict[str, str] = {task: task for task in graph.layers}

    def first(task: str) -> str:
        while part_of[task] != task:
            part_of[task] = part_of[part_of[task]]
            task = part_of[task]
        return task

    for edge in graph.edges:
        one, other = sorted((first(edge.parent), first(edge.child)))
        part_of[other] = one
    layers: dict[str, dict[str, int]] = {}
    edges: dict[str, list[TaskEdge]] = {}
    for task, layer in graph.layers.items():
        layers.setdefault(first(task), {})[task] = layer
    for edge in graph.edges:
        edges.setdefault(first(edge.parent), []).append(edge)
    return [TaskGraph(layers[name], tuple(edges.get(name, ()))) for name in sorted(layers)]


def _ways(graph: TaskGraph) -> list[list[_Item]]:
    """Return the way of each edge: its parent, the columns that it passes, its child."""
    spans = [range(graph.layers[edge.parent] + 1, graph.layers[edge.child]) for edge in graph.edges]
    fits = sum(map(len, spans)) <= PASSINGS_MAX
    return [
        [edge.parent, *(_Pass(number, layer) for layer in spans[number] if fits), edge.child]
        for number, edge in enumerate(graph.edges)
    ]


def _order(columns: Sequence[list[_Item]], neighbours: Mapping[_Item, Sequence[_Item]]) -> None:
    """Order each column but the first by the mean place of its items' neighbours in the columns before it."""
    places = {item: (place + 0.5) / len(columns[0]) for place, item in enumerate(columns[0])} if columns else {}
    for column in columns[1:]:
        own = {item: (place + 0.5) / len(column) for place, item in enumerate(column)}
        means = {
            item: sum(known) / len(known) if (known := [places[one] for one in neighbours.get(item, ())]) else own[item]
            for item in column
        }
        column.sort(key=means.__getitem__)
        places |= {item: (place + 0.5) / len(column) for place, item in enumerate(column)}


def _height(item: _Item) -> float:
    return BOX_HEIGHT if isinstance(item, str) else PASSING


def _x(layer: int) -> float:
    return MARGIN + layer * (BOX_WIDTH + COLUMN_GAP)


def _line(layers: Mapping[str, int], edge: TaskEdge, way: Sequence[_Item], tops: Mapping[_Item, float]) -> EdgeLine:
    x, y = _x(layers[edge.parent]) + BOX_WIDTH, tops[edge.parent] + BOX_HEIGHT / 2
    path = f"M{x:.1f} {y:.1f}"
    for item in way[1:]:
        layer = layers[item] if isinstance(item, str) else item.layer
        to_x, to_y = _x(layer), tops[item] + _height(item) / 2
        bend = (to_x - x) / 2
        path += f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
        if not isinstance(item, str):
            x += BOX_WIDTH
            path += f"H{x:.1f}"
    return EdgeLine(edge, path, (x, y))
