"""ssl.principal.mapping.rules maps certificate subjects as the examples of KIP-371 do."""

from __future__ import annotations

import pytest

from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.security.tls.names import distinguished_name, mapped_name, parse_rules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("OU=JavaTeam,CN=Duke.Maker", "duke.maker"),
        ("OU=SME,O=mycp", "OU=SME,O=mycp"),
    ],
)
def test_the_first_matching_rule_maps_the_name(name: str, mapped: str) -> None:
    assert mapped_name(parse_rules(RULES), name) == mapped


def test_names_are_mapped_to_upper_case_and_refused_without_a_matching_rule() -> None:
    rules = parse_rules("RULE:^CN=(\\w+)$/$1/U")
    assert mapped_name(rules, "CN=alice") == "ALICE"
    assert mapped_name(rules, "CN=alice,O=x") is None
    assert mapped_name(parse_rules("DEFAULT"), "CN=alice") == "CN=alice"


@pytest.mark.parametrize("text", ["RULE:a", "DEFAULT2", "RULE:(/x/", "RULE:^a$/$1/", "RULE:a/b/X"])
def test_malformed_mapping_rules_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(text)


def test_the_name_in_a_certificate_as_rfc_2253_writes_it() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "a, b"),),
        (("commonName", "alice"), ("userId", "7")),
    )
    assert distinguished_name({"subject": subject}) == "CN=alice+UID=7,O=a\\, b,C=DE"
