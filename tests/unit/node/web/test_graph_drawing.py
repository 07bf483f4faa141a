"""The layout of a graph of tasks."""

from itertools import combinations, pairwise

from node.duty.task_graph import TaskEdge, TaskGraph
from node.web.graph_drawing import BOX_HEIGHT, BOX_WIDTH, GraphDrawing, drawing_of, folded, linked_parts, stacked


def graph(layers: dict[str, int], *edges: str) -> TaskGraph:
    """A graph with edges as two letters, parent and child."""
    return TaskGraph(layers, tuple(TaskEdge(one[0], one[1], "succeeded") for one in edges))


def column(drawing: GraphDrawing, x: float) -> list[str]:
    """The tasks of a column, from the top."""
    return [box.task for box in sorted(drawing.boxes, key=lambda box: box.y) if box.x == x]


def test_parents_are_to_the_left_and_boxes_do_not_overlap() -> None:
    drawing = drawing_of(graph({"a": 0, "b": 1, "c": 1, "d": 2}, "ab", "ac", "bd", "cd"))
    at = {box.task: box for box in drawing.boxes}
    assert at["a"].x < at["b"].x == at["c"].x < at["d"].x
    assert at["a"].y == at["d"].y, "the ends of a diamond are level"
    assert at["b"].y + BOX_HEIGHT < at["c"].y
    for one, other in combinations(drawing.boxes, 2):
        assert abs(one.x - other.x) >= BOX_WIDTH or abs(one.y - other.y) >= BOX_HEIGHT
    assert drawing.width >= max(box.x for box in drawing.boxes) + BOX_WIDTH
    assert drawing.height >= max(box.y for box in drawing.boxes) + BOX_HEIGHT
    first, *_ = drawing.lines
    assert first.path.startswith(f"M{at['a'].x + BOX_WIDTH:.1f} {at['a'].y + BOX_HEIGHT / 2:.1f}C")
    assert first.end == (at["b"].x, at["b"].y + BOX_HEIGHT / 2)


def test_a_column_is_ordered_so_that_lines_do_not_cross() -> None:
    drawing = drawing_of(graph({"a": 0, "b": 0, "c": 0, "x": 1, "y": 1, "z": 1}, "az", "by", "cx"))
    left, right = (column(drawing, x) for x in sorted({box.x for box in drawing.boxes}))
    assert [{"a": "z", "b": "y", "c": "x"}[task] for task in left] == right


def test_a_line_that_passes_a_column_has_room_in_it() -> None:
    drawing = drawing_of(graph({"a": 0, "b": 1, "c": 2}, "ab", "bc", "ac"))
    (long,) = (line for line in drawing.lines if (line.edge.parent, line.edge.child) == ("a", "c"))
    assert long.path.count("C") == 2
    (box,) = (box for box in drawing.boxes if box.task == "b")
    level = float(long.path.split("H")[0].split()[-1])
    assert not box.y <= level <= box.y + BOX_HEIGHT


def test_graphs_of_no_task_one_task_and_many() -> None:
    assert drawing_of(graph({})).boxes == ()
    assert len(drawing_of(graph({"a": 0})).boxes) == 1
    names = [f"t{number:03}" for number in range(200)]
    edges = [TaskEdge(one, other, "succeeded") for one, other in pairwise(names)]
    edges += [TaskEdge(names[0], name, "ended") for name in names[2:]]
    chain = drawing_of(TaskGraph({name: layer for layer, name in enumerate(names)}, tuple(edges)))
    assert (len(chain.boxes), len(chain.lines)) == (200, 397)
    assert len({box.y for box in chain.boxes}) == 1, "so many long lines are given no room of their own"


def test_of_many_tasks_side_by_side_some_are_kept_and_the_others_counted() -> None:
    names = [f"{number:03}" for number in range(180)]
    edges = tuple(TaskEdge("a", name, "succeeded") for name in names)
    wide = TaskGraph({"a": 0, **dict.fromkeys(names, 1)}, edges, left_out=5)
    found = folded(wide, "a", {"150"}, 12)
    assert found.tasks == ("a", *names[:11], "150")
    assert (len(found.edges), found.left_out) == (12, 173)
    assert folded(found, "a", set(), 12) == found
    assert "170" in folded(wide, "170", names[:100], 12).tasks, "it is always there itself"


def test_what_is_not_linked_is_below_one_another() -> None:
    several = graph({"a": 0, "b": 1, "c": 0, "d": 1, "e": 2, "z": 0}, "ab", "cd", "de")
    assert [part.tasks for part in linked_parts(several)] == [("a", "b"), ("c", "d", "e"), ("z",)]
    drawing = stacked(several)
    at = {box.task: box for box in drawing.boxes}
    assert at["a"].y == at["b"].y < at["c"].y == at["d"].y == at["e"].y < at["z"].y
    assert drawing.height >= at["z"].y + BOX_HEIGHT
    assert drawing.width == max(box.x for box in drawing.boxes) + BOX_WIDTH + at["a"].x
    for line in drawing.lines:
        assert line.end[1] + line.y == at[line.edge.child].y + BOX_HEIGHT / 2
    assert stacked(graph({})).boxes == ()
