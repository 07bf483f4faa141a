"""The page's files: the vendored ones are as recorded, and all of them are in the package."""

import hashlib
import json
import re
from pathlib import Path

import node.web
from node.web.assets import assets

ROOM = Path(node.web.__file__).parent
VENDOR = ROOM / "static" / "vendor"


def test_what_is_vendored_is_what_was_recorded_with_its_licence() -> None:
    recorded = json.loads((VENDOR / "vendored.json").read_text())
    for entry in recorded:
        assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"])
        assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]
        assert (VENDOR / entry["licence_file"]).stat().st_size > 100
    listed = {entry[name] for entry in recorded for name in ("file", "licence_file")}
    assert {path.name for path in VENDOR.iterdir()} == {*listed, "vendored.json"}


def test_every_file_of_the_page_is_served() -> None:
    files = {path.name for path in (ROOM / "static").rglob("*") if path.is_file() and path.suffix != ".LICENSE"}
    assert files - {"vendored.json"} == assets().keys()


def test_nothing_of_the_page_needs_another_site_or_an_inline_script_or_style() -> None:
    for path in (ROOM / "templates").rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"https?://", text), path.name
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|hx-on|<script(?! defer src=)", text), path.name
    for name in assets().keys() - {path.name for path in VENDOR.iterdir()} - {"icon.svg"}:
        assert not re.search(r"https?://", assets()[name].body.decode()), name
