"""Measures which branches of the broker's code are executed in the runs of some seeds: `python -m oncelog_simulation
coverage --seeds 1-100`.

The modules of `ROOMS` are changed when they are imported: the first statement of each branch records that the branch
was reached. Therefore the measurement needs a separate process, `python -m oncelog_simulation.reached FIRST LAST`,
which runs the seeds and prints a table. A branch is the body of an `if`, `elif` or `else`, of a loop, of an `except` or
of a `case`; a missing `else` counts as a branch, too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from pkgutil import walk_packages
from types import CodeType, ModuleType
from typing import Any, Final

ROOMS: Final = tuple(f"oncelog_broker.{room}" for room in ("replication", "controller", "coordinator", "log"))
BEGIN: Final = "<!-- branches -->\n"
END: Final = "<!-- end of branches -->\n"
MOST_TOLD: Final = 8
"""Number of modules that the report lists with their unreached branches."""


class Reached:
    """Records the reached branches of all changed modules, by number."""

    def __init__(self) -> None:
        self.hit = bytearray()
        self.branches: list[tuple[str, int]] = []
        """The module and line of each branch; the position in this list is the number of the branch."""

    def branch(self, module: str, line: int) -> int:
        """Add a branch, and return its number."""
        self.hit.append(0)
        self.branches.append((module, line))
        return len(self.branches) - 1


REACHED: Final = Reached()


class _Noting(ast.NodeTransformer):
    """Inserts a statement at the head of each branch of a module."""

    def __init__(self, module: str) -> None:
        self._module = module

    def _noted(self, body: list[ast.stmt], line: int) -> list[ast.stmt]:
        number = REACHED.branch(self._module, body[0].lineno if body else line)
        statement = ast.parse(f"__reached__[{number}] = 1").body[0]
        for each in ast.walk(statement):
            each.lineno = each.end_lineno = line  # type: ignore[attr-defined]
            each.col_offset = each.end_col_offset = 0  # type: ignore[attr-defined]
        return [statement, *body]

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if isinstance(node, ast.If):
            if _is_for_types(node):
                return node
            is_chain = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
            node.body = self._noted(node.body, node.lineno)
            if not is_chain:
                node.orelse = self._noted(node.orelse, node.lineno)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler):
            node.body = self._noted(node.body, node.lineno)
        elif isinstance(node, ast.match_case):
            node.body = self._noted(node.body, node.body[0].lineno)
        return node


def _is_for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(ROOMS):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        tree = _Noting(fullname).visit(ast.parse(Path(self.path).read_bytes(), self.path))
        return compile(tree, self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__reached__"] = REACHED.hit
        super().exec_module(module)


def table() -> str:
    """Return a Markdown table with the share of reached branches for each subsystem and package."""
    of_package: defaultdict[str, list[int]] = defaultdict(list)
    for (module, _), hit in zip(REACHED.branches, REACHED.hit, strict=True):
        parts = module.split(".")
        of_package[".".join(parts[1:3]) if len(parts) > 3 else parts[1]].append(hit)
    rows = [
        f"| `{package}` | {len(hits)} | {sum(hits)} | {100 * sum(hits) // len(hits)} % |\n"
        for package, hits in sorted(of_package.items())
    ]
    return "| Part of the broker | Branches | Reached | |\n|---|---:|---:|---:|\n" + "".join(rows)


def missed() -> str:
    """Return the modules with the most unreached branches, and the lines of these branches."""
    lines: defaultdict[str, list[int]] = defaultdict(list)
    for (module, line), hit in zip(REACHED.branches, REACHED.hit, strict=True):
        if not hit:
            lines[module].append(line)
    worst = sorted(lines.items(), key=lambda each: -len(each[1]))[:MOST_TOLD]
    return "\n".join(f"{module}: {', '.join(map(str, sorted(set(where))))}" for module, where in worst)


def measure(first: int, last: int) -> tuple[str, str]:
    """Return both tables for these seeds, measured in a separate process."""
    command = [sys.executable, "-m", "oncelog_simulation.reached", str(first), str(last)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    reached, _, left = said.partition("\n\n")
    return reached + "\n", left


def import_rooms() -> None:
    """Import all modules of `ROOMS` with the statements that record their branches. All modules are imported now,
    because a module that a broker imports later would be read in a simulated world, where no file can be read.
    """
    sys.meta_path.insert(0, _Finder())
    for room in ROOMS:
        for found in walk_packages(import_module(room).__path__, f"{room}."):
            import_module(found.name)


def main(first: int, last: int) -> None:
    """Run the seeds, and print the reached branches."""
    import_rooms()
    from oncelog_simulation.run import run
    from oncelog_simulation.scenario import WholeCluster, draw_whole_plan

    for seed in range(first, last + 1):
        run(draw_whole_plan(seed), WholeCluster())
    print(table())
    print(missed())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
