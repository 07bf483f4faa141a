"""The colours of both themes: text has a contrast of 4.5 to 1 (WCAG AA) on every ground that it stands on."""

import re
from itertools import chain, product

import pytest

from node.web.assets import assets

CSS = assets()["page.css"].body.decode()
LIGHT, DARK = (
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in CSS.split("@media screen and (prefers-color", 1)
)
GROUNDS = ("paper", "sheet", "sunk")
WASHES = [(ink, f"{state}-wash") for state, ink in product(("good", "warn", "bad", "busy"), ("ink", "soft"))] + [
    (state, f"{state}-wash") for state in ("good", "warn", "bad", "busy")
]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(theme: dict[str, str]) -> None:
    words = product(("ink", "soft", "good", "warn", "bad", "busy", "accent"), GROUNDS)
    for ink, ground in chain(words, WASHES, [("on-accent", "accent"), ("paper", "ink")]):
        found = contrast(theme[ink], theme[ground])
        assert found >= 4.5, f"{ink} on {ground}: {found:.2f}"


def contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
