"""The types of client options as type checkers and editors see them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import oncelog.typed_options as typed
from oncelog.cli.options import client_settings
from oncelog.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, declared_types, load
from oncelog.errors import ConfigError

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "tests/data/typed_program.py"
SERVERS = "127.0.0.1:9092"
PAIRS = [
    (typed.ClientOptions, ClientConfig),
    (typed.ProducerOptions, ProducerConfig),
    (typed.ConsumerOptions, ConsumerConfig),
    (typed.AdminOptions, AdminConfig),
]


def test_mypy_finds_misspelt_and_mistyped_options_in_a_users_program(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="the extra lint is not installed")
    expected = {
        number: match[1]
        for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
        if (match := re.search(r"  # ([a-z-]+)$", line))
    }
    assert len(expected) == 15
    shown = subprocess.run(
        # The program is checked as a user does it: in another directory, without the project's configuration, against
        # the installed package.
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(PROGRAM),
         "--cache-dir", str(ROOT / ".mypy_cache/typed_program")],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.stderr == ""
    errors = re.findall(r"^(.*):(\d+): error: .*\[([a-z-]+)\]$", shown.stdout, re.MULTILINE)
    assert {Path(file) for file, _, _ in errors} == {PROGRAM}, shown.stdout
    assert {int(line): code for _, line, code in errors} == expected, shown.stdout


@pytest.mark.parametrize("package", ["oncelog", "oncelog_protocol", "oncelog_testing"])
def test_types_are_shipped(package: str) -> None:
    assert (files(package) / "py.typed").is_file()


@pytest.mark.parametrize(("options", "config"), PAIRS)
def test_typed_options_are_the_fields_of_the_config(options: Any, config: type[ClientConfig]) -> None:
    """All options are listed as keyword arguments with the same types."""
    hints = get_type_hints(options, localns={"Tracing": object})
    assert hints == {name: hint for name, hint in declared_types(config).items() if name != "bootstrap_servers"}
    assert not options.__required_keys__
    assert list(hints) == [field.name for field in fields(config)][1:]


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (ConsumerConfig, {"enable_auto_commit": "no"}, "enable_auto_commit='no': must be True or False, not str"),
        (ConsumerConfig, {"check_crcs": 1}, "check_crcs=1: must be True or False, not int"),
        (ConsumerConfig, {"group_id": 7}, "group_id=7: must be a str or None, not int"),
        (ConsumerConfig, {"client_rack": None}, "client_rack=None: must be a str, not NoneType"),
        (ConsumerConfig, {"partition_assignment_strategy": "range"}, "'range': must be a list or a tuple, not str"),
        (
            ConsumerConfig,
            {"partition_assignment_strategy": []},
            r"_assignment_strategy=\[\]: must not be empty",
        ),
        (ProducerConfig, {"partitioner_ignore_keys": None}, "must be True or False, not NoneType"),
        (ProducerConfig, {"enable_idempotence": 0}, "enable_idempotence=0: must be True, False or None, not int"),
        (AdminConfig, {"ssl_cafile": True}, "ssl_cafile=True: must be a str or None, not bool"),
        (AdminConfig, {"ssl_context": "strict"}, "ssl_context='strict': must be a SSLContext or None, not str"),
        (
            AdminConfig,
            {"sasl_plain_password": b"secret"},
            "^[^=]*sasl_plain_password: must be a str or None",
        ),
    ],
)
def test_a_value_of_another_type_is_refused(config: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(config, SERVERS, options)


def test_bootstrap_servers_of_another_type_are_refused() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers=9092: must be a str or a list, not int"):
        load(AdminConfig, 9092, {})  # type: ignore[arg-type]


def test_a_default_fits_its_type() -> None:
    for config in (ClientConfig, ProducerConfig, ConsumerConfig, AdminConfig):
        config(bootstrap_servers=SERVERS).validate()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (("client.id", "7"), "7"),
        (("group.id", "true"), "true"),
        (("sasl.plain.password", "0123"), "0123"),
        (("ssl.cafile", "1"), "1"),
        (("acks", "1"), "1"),
        (("linger.ms", "5"), 5),
        (("enable.auto.commit", "false"), False),
        (("enable.idempotence", "true"), True),
    ],
)
def test_command_line_options_have_their_declared_types(text: tuple[str, str], value: object) -> None:
    """In `-D client.id=7`, the value 7 is parsed as a name and not as a number."""
    (found,) = client_settings((text,)).values()
    assert (found, type(found)) == (value, type(value))
