"""The docstring of a package names exactly the package's modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = (
    "protocol/oncelog_protocol",
    "client/oncelog",
    "broker/oncelog_broker",
    "pipeline/oncelog_pipeline",
    "testing/oncelog_testing",
    "console/oncelog_console",
    "registry/oncelog_registry",
    "simulation/oncelog_simulation",
)
PACKAGES = sorted(path.parent for root in ROOTS for path in (ROOT / root).rglob("__init__.py"))
INDEXES = {"messages"}
"""Packages with one module for each API, where the names of the modules suffice as a map."""
NAME = re.compile(r"`(\w+)`|\b(\w+)(?:\.py|/)")
"""Matches the name of a module as package docstrings write it: `name`, name.py or name/."""
FILE = re.compile(r"\b(\w+)\.py")


def modules_of(package: Path) -> set[str]:
    files = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_names_its_modules(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring, "a room says what it is for"
    if package.name not in INDEXES:
        named = {name for names in NAME.findall(docstring) for name in names}
        assert modules_of(package) - named == set(), "not on the map"
    assert set(FILE.findall(docstring)) - modules_of(package) == set(), "on the map, but not there"
