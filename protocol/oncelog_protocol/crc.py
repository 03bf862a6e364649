"""CRC-32C from the package `crc32c`, without the other imports of that package.

The package reads its own version with importlib.metadata, which imports email, zipfile and about thirty more modules: a
tenth of a broker's startup time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    def _of_the_extension():
        package = PathFinder.find_spec("crc32c")
        extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if not extension:
            raise ImportError("crc32c does not contain this extension")
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
        return module.crc32c

    try:
        crc32c = _of_the_extension()
    except (ImportError, AttributeError):  # this release of the package crc32c has other module names
        from crc32c import crc32c

__all__ = ["crc32c"]
