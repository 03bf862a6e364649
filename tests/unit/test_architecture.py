"""docs/architecture.md names only existing files and packages, and its floor plan has every package of the broker."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BROKER = ROOT / "broker" / "oncelog_broker"
SOURCES = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")} - {"build", "docs"}
FILE = re.compile(r"[\w/.-]*\w\.py\b")
ROOM = re.compile(r"`([\w/]+/)`")
INNER = ("server", "metadata", "log")
"""Packages whose subpackages the floor plan shows, too."""


def existing_paths() -> set[str]:
    """Return each file and folder under every suffix of its path: `produce.py`, `records/produce.py` and so on."""
    ends = set(SOURCES)
    for source in SOURCES:
        for path in (ROOT / source).rglob("*"):
            if path.suffix in {".py", ""} and "__pycache__" not in path.parts:
                parts = path.relative_to(ROOT).parts
                ends.update("/".join(parts[start:]) for start in range(len(parts)))
    return ends


def floor_plan() -> str:
    return PAGE.read_text().partition("## The floor plan of a broker\n")[2].split("```")[1]


def test_files_and_rooms_that_the_page_names_are_there() -> None:
    text = PAGE.read_text()
    named = {name.lstrip("/") for name in FILE.findall(text)} | {name.rstrip("/") for name in ROOM.findall(text)}
    assert len(named) > 100
    assert named - existing_paths() == set()


def test_the_floor_plan_has_every_room_of_the_broker() -> None:
    rooms = {path.parent for path in BROKER.glob("*/__init__.py")}
    rooms |= {path.parent for room in INNER for path in (BROKER / room).glob("*/__init__.py")}
    assert {room.name for room in rooms} - set(re.findall(r"\w+", floor_plan())) == set()
