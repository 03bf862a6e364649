"""Administration. What programs need of it is imported from here.

resources.py     what Admin takes and gives: topics to be, configuration, the cluster
hanging.py       (pure) transactions as coordinators and partitions show them, and which of them hang
items.py         calls about several items, each of which succeeds or fails by itself
calls.py         what every part asks with: one broker, the controller, leaders, a coordinator
coordinators.py  asking the coordinators of groups and of transactional ids
configs.py       the configuration of topics and brokers
log_dirs.py      the data directories of brokers
log_parts.py     batches as the log has them, markers among them
elections.py     elections of leaders
reassignments.py partitions on their way to other brokers
users.py         who logs in by SCRAM
quotas.py        how much users, client ids and addresses may do
groups.py        consumer groups: `admin.groups`
pending_offsets.py offsets of groups that open transactions hold
transactions.py  transactions: `admin.transactions`
prepared.py      transactions that were handed over: taken over, and ended
acls.py          who may do what: `admin.acls`
admin.py         the public face
"""

from oncelog.admin.admin import Admin
from oncelog.admin.hanging import Explanation, Hang, HangingTransaction
from oncelog.admin.log_dirs import LogDirectory, StoredReplica
from oncelog.admin.log_parts import LogPart
from oncelog.admin.quotas import ANY_NAME, EVERY_QUOTA, QuotaAlteration, QuotaFilter
from oncelog.admin.reassignments import Reassignment
from oncelog.admin.resources import (
    AlterConfig,
    AlterOperation,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from oncelog.admin.users import ScramCredentialInfo, ScramDeletion, ScramUpsertion
from oncelog_protocol.acls import (
    EVERY_ACL,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    EntryFilter,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from oncelog_protocol.acls import ResourceType as AclResourceType
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.quotas import DEFAULT, QuotaEntity, QuotaKey

__all__ = [
    "ANY_NAME",
    "DEFAULT",
    "EARLIEST_TIMESTAMP",
    "EVERY_ACL",
    "EVERY_QUOTA",
    "LATEST_TIMESTAMP",
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AlterConfig",
    "AlterOperation",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "ElectionType",
    "EntryFilter",
    "Explanation",
    "Hang",
    "HangingTransaction",
    "LogDirectory",
    "LogPart",
    "NewPartitions",
    "NewTopic",
    "PatternFilter",
    "PatternType",
    "ProducerIdAndEpoch",
    "QuotaAlteration",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaKey",
    "Reassignment",
    "ResourcePattern",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramUpsertion",
    "StoredReplica",
]
