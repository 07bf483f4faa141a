"""A page that does not do what it says is found, and its line is named."""

import os
from pathlib import Path

import pytest

from testkit.pages import Commands, PageFailed, Shell, Stage, Values, follow, steps

PAGE = """\
# A page

```sh yours
NAME=you
```

```sh
cat > greeting <<EOF
hello, $NAME
EOF
sleep 60 &
```

<!-- stage: kill node-2 -->

```sh
cat greeting
false || echo "exit code $?"
```
```text
hello, ... there
exit code 1
```

```console
$ false
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


def test_blocks_share_a_shell_and_stage_directions_come_in_between(page: Path) -> None:
    page.write_text(PAGE)
    stages: list[str] = []
    with Shell(page.parent, os.environ) as shell:
        follow(page, shell, {"NAME": "you 'over' there"}, stages.append)
    assert stages == ["kill node-2"]
    assert [type(step) for step in steps(PAGE)] == [Values, Commands, Stage, Commands]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n```sh\ntrue\nfalse\ntrue\n```\n", "line 3: a command failed"),
        ("```sh\nfalse | cat\n```\n", "a command failed"),
        ("```sh\necho ${UNSET}\n```\n", "a command failed"),
        ("```sh\necho one\necho two\n```\n```text\ntwo\none\n```\n", "the output lacks 'one'"),
        ("```sh\nsleep 60\n```\n", "not done within"),
        ("```sh yours\nLACKING=1\n```\n", "has no value for LACKING"),
        ("```console\n$ true\n```\n", "holds no commands"),
    ],
)
def test_what_a_page_says_and_is_not_so(page: Path, text: str, said: str) -> None:
    page.write_text(text)
    with Shell(page.parent, os.environ) as shell, pytest.raises(PageFailed, match=said):
        follow(page, shell, {}, lambda _: None, deadline_s=0.5)


def test_only_assignments_are_the_reader_s_own() -> None:
    with pytest.raises(ValueError, match="only assignments"):
        steps("```sh yours\nrm -rf x\n```\n")
