"""Administration. Programs import the public names of this package from here.

resources.py     arguments and results: new topics, configuration, the cluster
hanging.py       (pure) combines coordinator and partition state; finds hanging transactions
items.py         calls for several items, each of which succeeds or fails independently
calls.py         sends requests to one broker, the controller, leaders, a coordinator
coordinators.py  requests to the coordinators of groups and transactional ids
configs.py       the configuration of topics and brokers
log_dirs.py      the data directories of brokers
log_parts.py     raw batches of a log, markers included
elections.py     leader elections
reassignments.py partition reassignments
users.py         SCRAM users
quotas.py        quotas of users, client ids and addresses
groups.py        consumer groups: `admin.groups`
streams_groups.py descriptions of streams groups
shares.py        share groups: `admin.shares`
pending_offsets.py pending offsets of open transactions
transactions.py  transactions: `admin.transactions`
prepared.py      ends and keeps prepared transactions
acls.py          ACLs: `admin.acls`
admin.py         the public class
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
