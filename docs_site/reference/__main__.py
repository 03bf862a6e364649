"""`python -m docs_site.reference`: writes the pages that are generated from the code, and names the files that it has
changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from docs_site.reference.pages import DOCS, MODULES, ROOT, names, written


def main() -> None:
    argparse.ArgumentParser(prog="python -m docs_site.reference", description=__doc__).parse_args()
    for module, make in MODULES.items():
        _write(ROOT / module, make())
    for page in names():
        _write(DOCS / page, written(page))


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
