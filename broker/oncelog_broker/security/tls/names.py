"""Maps the subject of a client certificate to a principal name: `ssl.principal.mapping.rules` (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from oncelog_broker.config.declared import InvalidConfig
from oncelog_protocol.light_classes import NamedTuple

_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Maps attributes to the short names of RFC 2253; other attributes keep OpenSSL's names."""
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*"
    r"(?:,|$)"
)
_GROUP: Final = re.compile(r"\$(\d)")


class Rule(NamedTuple):
    """One rule of ssl.principal.mapping.rules. `pattern` must match the certificate's entire name; `replacement` may
    contain $1 to $9. If `pattern` is None, the principal's name is the certificate's name without a change.
    """

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the principal's name, or None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        mapped = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": mapped.lower, "U": mapped.upper}.get(self.case, lambda: mapped)()


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse the rules in a value of ssl.principal.mapping.rules. Raises InvalidConfig."""
    rules = []
    position = 0
    while position < len(text.rstrip()):
        match = _RULE.match(text, position)
        if match is None:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: expected RULE:pattern/replacement/[LU] or DEFAULT at {text[position:]!r}"
            )
        position = match.end()
        if match["default"]:
            rules.append(Rule(None))
            continue
        try:
            pattern = re.compile(match["pattern"])
        except re.error as error:
            raise InvalidConfig(f"ssl.principal.mapping.rules: {match['pattern']!r}: {error}") from None
        for group in _GROUP.findall(match["replacement"]):
            if int(group) > pattern.groups:
                raise InvalidConfig(f"ssl.principal.mapping.rules: {match['pattern']!r} has no group ${group}")
        rules.append(Rule(pattern, match["replacement"], match["case"]))
    return tuple(rules)


def mapped_name(rules: Sequence[Rule], name: str) -> str | None:
    """Return the name by the first matching rule; None if no rule matches."""
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    return None


def distinguished_name(certificate: dict[str, Any]) -> str:
    """Return the subject of `SSLObject.getpeercert()` in RFC 2253 form, the most specific part first."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if len(value) > 1 and value.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
