"""The configuration file with several clusters: its values take effect, and mistakes are reported with their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog_console.clusters import Cluster, Login
from oncelog_console.command import console
from oncelog_console.configuration import read_configuration
from oncelog_console.login.oidc import OidcSettings
from oncelog_console.site import site_of
from oncelog_console.urls import PREFIX, is_ours, url

WHOLE = """
public_url = "https://console.example.com"
[oidc]
issuer = "https://id.example.com"
client_id = "console"
client_secret_file = "secret"
[clusters.production]
bootstrap_servers = "broker:9092"
command_config = "client.properties"
login = "oidc"
allow_changes = true
schema_registry = "http://registry:8081"
schemas = { orders = "order.avsc" }
connect = { main = "http://connect:8083" }
queries = ["http://driver:9405/metrics"]
[clusters.test]
bootstrap_servers = "127.0.0.1:9092"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("s3cret\n")
    (tmp_path / "order.avsc").write_text('"string"')
    (tmp_path / "client.properties").write_text("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
    return tmp_path / "console.toml"


def test_all_that_stands_in_the_file_is_taken(file: Path) -> None:
    file.write_text(WHOLE)
    read = read_configuration(file)
    production, test = read.clusters
    assert (production.name, production.login, production.allows_changes) == ("production", Login.OIDC, True)
    assert production.settings == {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    assert production.schema_files["orders"].path == file.parent / "order.avsc"
    assert production.connect_at == {"main": "http://connect:8083"}
    assert production.queries_at == ("http://driver:9405/metrics",)
    assert test == Cluster("test", "127.0.0.1:9092")
    assert read.oidc == OidcSettings("https://id.example.com", "console", "s3cret", "https://console.example.com")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('"oidc"', '"ldap"', "login is one of none, sasl, oidc"),
        ("allow_changes = true", 'allow_changes = "yes"', "allow_changes is a bool"),
        ("allow_changes", "allow_change", "there is no key 'allow_change'"),
        ('"broker:9092"', "9092", "bootstrap_servers is a str"),
        ('bootstrap_servers = "broker:9092"', "", "bootstrap_servers is missing"),
        ("client.properties", "nowhere.properties", "No such file"),
        ("order.avsc", "secret", "a schema is a file"),
        ("http://connect:8083", "file:///etc/passwd", "is not a URL"),
        ("http://driver", "ftp://driver", "is not a URL"),
        ("https://id.example.com", "http://id.example.com", "oidc.issuer is an https:// URL"),
        ('public_url = "https://console.example.com"', "", "public_url is missing"),
        ("[clusters.test]", '[clusters."a/b"]', "letters, digits"),
        ('login = "oidc"', 'login = "sasl"', "login=sasl needs security.protocol"),
        ("[clusters", "clusters", "console.toml"),
    ],
)
def test_a_mistake_in_the_file_is_named(file: Path, before: str, after: str, why: str) -> None:
    assert before in WHOLE
    file.write_text(WHOLE.replace(before, after, 1))
    with pytest.raises(ValueError, match=r"console\.toml") as raised:
        read_configuration(file)
    assert why in str(raised.value)
    told = CliRunner().invoke(console, ["--config", str(file)])
    assert (told.exit_code, "Traceback" in told.output) == (2, False)


def test_options_about_a_cluster_exclude_the_file(file: Path) -> None:
    file.write_text(WHOLE)
    told = CliRunner().invoke(console, ["--config", str(file), "--allow-changes"])
    assert (told.exit_code, "stands in the file" in told.output) == (2, True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--login"], "login=sasl needs security.protocol"),
        (["--schema", "orders"], "is not TOPIC=FILE"),
        (["--schema", "orders=nowhere.avsc"], "nowhere.avsc"),
        (["--connect", "http://connect:8083"], "is not NAME=URL"),
        (["--connect", "main=connect:8083"], "is not a URL"),
        (["--queries", "driver:9405"], "is not a URL"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_served(options: list[str], why: str) -> None:
    told = CliRunner().invoke(console, options)
    assert (told.exit_code, why in told.output) == (2, True), told.output


def test_a_login_by_token_needs_a_provider() -> None:
    settings = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    with pytest.raises(ValueError, match="needs an identity provider"):
        site_of([Cluster("test", "broker:9092", settings, Login.OIDC)])


def test_an_address_of_ours_has_the_prefix_of_its_cluster() -> None:
    assert url("/topics", q=None) == "/topics"
    token = PREFIX.set("/c/one")
    assert url("/topics", q="a b") == "/c/one/topics?q=a+b"
    PREFIX.reset(token)


@pytest.mark.parametrize("path", ["//evil", "http://evil", "/\\evil", "/a\nb", "", "evil"])
def test_a_path_to_another_site_is_not_ours(path: str) -> None:
    assert not is_ours(path)
    assert is_ours("/topics?q=//x")
