from __future__ import annotations

import json
import subprocess

import pytest

from oncelog.escaping import shell_quoted, visible, visible_bytes, visible_json

HOSTILE = "esc\x1b]0;pwned\x07\x1b[31mred\x1b[2J\x9b1m\u202eabc\u2066"


def test_terminal_control_characters_are_escaped() -> None:
    assert visible(HOSTILE) == r"esc\x1b]0;pwned\x07\x1b[31mred\x1b[2J\x9b1m\u202eabc\u2066"
    assert visible("Grüße, 世界 – 100 %") == "Grüße, 世界 – 100 %"
    assert visible("a\tb\nc") == r"a\tb\nc"
    assert visible("a\tb\nc", "\n") == "a\\tb\nc"


def test_bytes_that_are_no_text_are_written_out() -> None:
    assert visible_bytes(b"\xff\x1bk\xc3\xbc") == "\\xff\\x1bkü".encode()


def test_a_json_document_means_the_same() -> None:
    document = json.dumps({"name": HOSTILE + "\x7f\U000e0001"}, ensure_ascii=False)
    assert json.loads(visible_json(document)) == json.loads(document)
    assert visible_json(document).isprintable()


@pytest.mark.parametrize("name", ["plain", "two words", "it's", "back\\slash", HOSTILE, "new\nline'\\\x7f"])
def test_an_argument_may_be_copied_into_a_shell(name: str) -> None:
    said = subprocess.run(
        ["bash", "-c", f"printf %s {shell_quoted(name)}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert said.stdout.decode() == name
    assert shell_quoted(name).isprintable()
