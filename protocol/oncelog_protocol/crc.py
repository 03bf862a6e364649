"""CRC-32C, of the package `crc32c`, without what that imports beside it.

It reads its own version with importlib.metadata, which brings email, zipfile and some thirty modules more: a tenth of
what a broker takes to start.
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
            raise ImportError("crc32c has no extension of that name")
        module = module_from_spec(extension)
        extension.loader.exec_module(module)
        return module.crc32c

    try:
        crc32c = _of_the_extension()
    except (ImportError, AttributeError):  # a release that is made up of other parts
        from crc32c import crc32c

__all__ = ["crc32c"]
