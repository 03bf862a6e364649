"""The generated pages in docs/ are up to date: each equals the output of `make reference`."""

from __future__ import annotations

import pytest
from docs_site.reference import python_api
from docs_site.reference.markdown import cell, code, table, with_section
from docs_site.reference.pages import DOCS, MODULES, ROOT, names, written


@pytest.mark.parametrize("page", names())
def test_a_page_is_what_the_code_says(page: str) -> None:
    path = DOCS / page
    assert path.is_file(), "make reference"
    is_true = path.read_text() == written(page)
    assert is_true, f"docs/{page} is not what the code says: make reference"  # avoids a diff of thousands of lines


@pytest.mark.parametrize("module", MODULES)
def test_a_generated_module_is_what_its_declarations_say(module: str) -> None:
    assert (ROOT / module).read_text() == MODULES[module](), "make reference"


def test_a_table_cell_stays_one_cell() -> None:
    assert cell("a | b\n  <c>") == r"a \| b \<c\>"
    assert code("[a|b]") == r"`[a\|b]`"
    assert code("`a`").strip("`") == "a"
    assert table(["A", "B"], [["1", ""]]) == "| A | B |\n| --- | --- |\n| 1 | |\n"


def test_a_section_is_written_where_it_stands() -> None:
    page = "before\n<!-- one -->\nold\n<!-- end of one -->\nafter\n"
    assert with_section(page, "one", "new\n") == page.replace("old", "new")
    with pytest.raises(ValueError, match="two"):
        with_section(page, "two", "new\n")


def test_members_of_the_api_are_named_once() -> None:
    named = [name for chapter in python_api.chapters() for name in chapter.members]
    assert sorted(set(named)) == sorted(named)
