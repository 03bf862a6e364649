"""`python -m docs_site.reference`: writes the pages that are made of the code, and names those that it has changed."""

from __future__ import annotations

import argparse

from docs_site.reference.pages import DOCS, names, written


def main() -> None:
    argparse.ArgumentParser(prog="python -m docs_site.reference", description=__doc__).parse_args()
    for page in names():
        path, text = DOCS / page, written(page)
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"docs/{page}")


if __name__ == "__main__":
    main()
