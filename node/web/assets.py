"""The page's style sheets, scripts and icon: read once, with a digest in their URLs so that browsers may cache them."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAMES: Final = (
    "page.css",
    "cluster.css",
    "task.css",
    "page.js",
    "live.js",
    "edit.js",
    "panel.js",
    "run.js",
    "task.js",
    "timeline.js",
    "week.js",
    "icon.svg",
    "vendor/htmx.min.js",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
)

VERSION_HEX: Final = 12
"""The number of hexadecimal digits of a version: the first ones of the content's SHA-256."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page. `version` changes with its content."""

    body: bytes
    media_type: str
    version: str


@cache
def assets() -> dict[str, Asset]:
    """Return all assets by name, which is the last part of their paths."""
    found = {}
    for path in _NAMES:
        body = files("node.web").joinpath("static", path).read_bytes()
        name = path.rpartition("/")[2]
        version = hashlib.sha256(body).hexdigest()[:VERSION_HEX]
        found[name] = Asset(body, _TYPES[name[name.rindex(".") :]], version)
    return found


@cache
def page_version() -> str:
    """Return the version of all assets together. An open page with another version is from an earlier build."""
    return hashlib.sha256("".join(asset.version for asset in assets().values()).encode()).hexdigest()[:VERSION_HEX]


def asset_path(name: str) -> str:
    """Return the path of an asset below the page's root, with its version."""
    return f"static/{name}?v={assets()[name].version}"
