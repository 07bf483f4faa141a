"""Tables of the command line on wide, narrow and very narrow terminals."""

from hypothesis import given, settings
from hypothesis import strategies as st

from node.cli.table import lay_out

HEADINGS = ("RUN", "STATE", "ERROR")
RUN = "nightly~20261121T071721.285559Z~29"
ROWS = [(RUN, "failed", "CommandFailed: 'sh' ended with exit code 7"), ("a~1", "succeeded", "")]


def test_into_a_pipe_each_row_is_one_line() -> None:
    assert list(lay_out(HEADINGS, ROWS, None)) == [
        f"RUN{' ' * 33}STATE      ERROR",
        f"{RUN}  failed     CommandFailed: 'sh' ended with exit code 7",
        f"a~1{' ' * 33}succeeded",
    ]


def test_the_last_column_is_folded_in_its_place() -> None:
    assert list(lay_out(HEADINGS, ROWS, 80))[1:3] == [
        f"{RUN}  failed     CommandFailed: 'sh' ended with",
        f"{' ' * 47}exit code 7",
    ]


def test_the_last_column_goes_below_where_there_is_no_room_beside() -> None:
    assert list(lay_out(HEADINGS, ROWS, 50)) == [
        f"RUN{' ' * 33}STATE",
        f"{RUN}  failed",
        "    CommandFailed: 'sh' ended with exit code 7",
        f"a~1{' ' * 33}succeeded",
    ]


def test_each_row_is_a_list_where_the_columns_do_not_fit() -> None:
    assert list(lay_out(HEADINGS, ROWS, 30)) == [
        f"RUN    {RUN}",
        "STATE  failed",
        "ERROR  CommandFailed: 'sh' ended with exit code 7",
        "",
        "RUN    a~1",
        "STATE  succeeded",
    ]


@given(
    st.lists(st.tuples(st.text("ab~é漢", max_size=30), st.text("xyz", max_size=12), st.text("m n", max_size=60))),
    st.integers(10, 120),
)
@settings(max_examples=40)
def test_what_may_be_copied_is_never_broken(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = list(lay_out(HEADINGS, rows, width))
    for run, state, _ in rows:
        assert any(run in line for line in lines)
        assert any(state in line for line in lines)
