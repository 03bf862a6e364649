"""Each module of the broker's core has a test file of the same name, or an entry in tests/data/tested-elsewhere.toml.
The entry has the test files that test the module, or the reason why it needs no test.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BROKER: Final = ROOT / "broker" / "oncelog_broker"
TESTS: Final = ROOT / "tests" / "unit" / "broker"
LIST: Final = ROOT / "tests" / "data" / "tested-elsewhere.toml"
CORE: Final = ("controller", "coordinator", "log", "metadata", "replication", "server")
PROPERTIES: Final = ROOT / "tests" / "property"


def modules() -> set[str]:
    """Return the paths of the modules, such as `log/segments/segment.py`."""
    return {
        path.relative_to(BROKER).as_posix()
        for room in CORE
        for path in (BROKER / room).rglob("*.py")
        if path.name != "__init__.py"
    }


def has_own_tests(module: str) -> bool:
    """Whether a test file of the module's name exists in the mirrored folder or among the property tests."""
    room, name = module.partition("/")[0], f"test_{Path(module).name}"
    return any(next(folder.rglob(name), None) is not None for folder in (TESTS / room, PROPERTIES))


def listed() -> dict[str, list[str] | str]:
    lists = tomllib.loads(LIST.read_text())
    return {**lists["tested_by"], **lists["needs_none"]}


def test_every_module_of_the_core_is_tested_by_its_name_or_listed() -> None:
    without = {module for module in modules() if not has_own_tests(module)}
    assert without - listed().keys() == set(), "write tests/unit/broker/.../test_<name>.py, or a line in the list"


def test_the_list_has_no_module_that_needs_it_no_more() -> None:
    assert listed().keys() - modules() == set(), "there is no such module"
    assert {module for module in listed() if has_own_tests(module)} == set(), "these have test files of their names"


def test_the_tests_and_reasons_of_the_list_are_there() -> None:
    lists = tomllib.loads(LIST.read_text())
    named = {file for files in lists["tested_by"].values() for file in files}
    assert {file for file in named if not (TESTS / file).is_file()} == set()
    assert all(files for files in lists["tested_by"].values())
    assert all(lists["needs_none"].values())
