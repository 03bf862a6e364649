"""Known differences in the responses to unauthenticated clients, and to users without rights."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import Known
from tests.interop.differential.side import CLOSED

_FOLLOWER: Final = "ClusterAction Cluster for a follower*"

KNOWN: Final = (
    Known("two-mechanisms", "logins.users", "error_code", 92, 0, "AlterUserScramCredentials", "both at once"),
    Known("own-transaction", "secured.refusals", "error_code", 31, 0, "AddPartitionsToTxn"),
    Known("amid-login", "secured.handshakes", "", ours=CLOSED, api="SaslHandshake", label="again PLAIN"),
    Known("amid-login", "secured.versions_first", "", ours=CLOSED, api="ApiVersions", label="after the handshake"),
    Known("amid-login", "secured.out_of_order", "", ours=CLOSED, api="Metadata", label="between handshake and token"),
    Known("refused-as-a-whole", "secured.refusals", "responses.*", api="AlterPartitionReassignments"),
    Known("refused-as-a-whole", "secured.refusals", "topics.*", api="ListPartitionReassignments"),
    Known("refused-followers", "secured.refusals", "error_code", 0, 31, "Fetch", _FOLLOWER),
    Known("refused-followers", "secured.refusals", "responses.*", api="Fetch", label=_FOLLOWER),
    Known("id-of-the-refused", "secured.refusals", "responses.an id", ours=ABSENT, api="AlterShareGroupOffsets"),
    Known("id-of-the-refused", "secured.refusals", "responses.no id", ABSENT, api="AlterShareGroupOffsets"),
    Known("shares-of-no-topic", "secured.refusals", "error_code", -1, 0, "ShareFetch", "*, there is not"),
)
