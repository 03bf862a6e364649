"""Authorized operations in responses: one bit per AclOperation code (KIP-430)."""

from typing import Final

AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)
"""Not asked for, or not known."""
ALL_TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: what there is to do with a topic."""
ALL_CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE."""
