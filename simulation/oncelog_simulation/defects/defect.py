"""One seeded defect, and how it is inserted into the code.

The source of one module is changed when the module is imported, so the defect must be installed before any code imports
the module: in a process that has just started. The file on disk stays unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple


class DefectIsStale(Exception):
    """Raised if the code has changed so that a defect no longer fits: its text `old` does not occur exactly once in the
    module.
    """


class Defect(NamedTuple):
    """One defect with its name. `old` occurs exactly once in the source of `module`; `new` replaces it."""

    name: str
    what: str
    """The wrong behaviour of the broker or client."""
    module: str
    old: str
    new: str
    workloads: tuple[str, ...]
    """The workloads that run while the defect is hunted; the faults of each plan are drawn as for any other plan."""
    seeds: int
    """Number of seeds within which the defect must be found."""
    faults: tuple[str, ...] | None = None
    """The kinds of faults to draw from; None means the default faults of the module that lists this defect."""
    scene: str = ""
    """The scene that is played while the defect is hunted, instead of drawn faults and the workloads; empty means
    none.
    """


def source_of(module: str) -> str:
    """Return the source text of a project's module, without importing the module."""
    package, _, _ = module.rpartition(".")
    assert package, f"{module} is in no package"
    spec = find_spec(module)
    assert spec is not None, f"no module {module} found"
    assert spec.origin is not None, f"{module} is not a file"
    return Path(spec.origin).read_text()


def changed(source: str, defect: Defect) -> str:
    """Return the source of the defect's module with `old` replaced by `new`. Raises DefectIsStale."""
    found = source.count(defect.old)
    if found != 1:
        raise DefectIsStale(f"{defect.name}: the text occurs {found} times in {defect.module}, not once")
    return source.replace(defect.old, defect.new)


def install(defect: Defect) -> None:
    """Insert the defect when its module is imported. Raises DefectIsStale if the module is already imported."""
    if defect.module in sys.modules:
        raise DefectIsStale(f"{defect.name}: {defect.module} is imported already")
    sys.meta_path.insert(0, _Finder(defect.module, changed(source_of(defect.module), defect)))


class _Finder(MetaPathFinder):
    """Finds one module, and loads it from the changed source. The source is read before a run begins, because a module
    may be imported in a simulated world, where no file can be read.
    """

    def __init__(self, module: str, text: str) -> None:
        self._module = module
        self._text = text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(self._module, spec.origin, self._text)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, module: str, path: str, text: str) -> None:
        super().__init__(module, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType | None:
        """Return code compiled from the changed source, never from a cache."""
        return self.source_to_code(self._text.encode(), self.path)
