"""The hooks of MkDocs: add pages from outside docs/, and map links to the targets in the site.

The page of rules names their tests here, and only here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs loads us by our path

from docs_site import links, offline
from docs_site.reference import rules

RULES = "reference/rules.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds `links.PAGES`, and other targets of links in the repository: copies of files, lists of directories.

    The page of rules is replaced by one with the names of their tests.
    """
    if (without_tests := files.get_file_from_path(RULES)) is not None:
        files.remove(without_tests)
    files.append(File.generated(config, RULES, content=rules.document(names_tests=True)))
    for source, uri in links.PAGES.items():
        files.append(File.generated(config, uri, content=(links.ROOT / source).read_text()))
    todo = [*files.documentation_pages()]
    while todo:
        page = todo.pop()
        if lost := links.missing(page.src_uri, page.content_string):
            raise PluginError(f"{links.in_repository(page.src_uri)} links to what is not there: {', '.join(lost)}")
        for target in links.linked(page.src_uri, page.content_string):
            uri = links.in_site(target)
            if not uri.startswith(f"{links.SOURCES}/") or files.get_file_from_path(uri) is not None:
                continue
            if uri.endswith(f"/{links.LISTING}"):
                todo.append(File.generated(config, uri, content=links.listing(target)))
                files.append(todo[-1])
            else:
                files.append(File.generated(config, uri, abs_src_path=str(links.ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return links.for_site(page.file.src_uri, markdown)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Fails the build where a page would fetch something from elsewhere."""
    if found := offline.fetched_from_elsewhere(Path(config.site_dir)):
        raise PluginError("the site is not whole without a network:\n" + "\n".join(found))
