"""Creates the authorizer that the configuration names, and passes the ACLs of each cluster image to it."""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.authorizer_keys import ALLOW_EVERYONE_IF_NO_ACL_FOUND, AUTHORIZER_CLASS_NAME, SUPER_USERS
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer, parse_super_users

NO_AUTHORIZER: Final = ""


def configured_authorizer(config: BrokerConfig, metadata: MetadataCache) -> StandardAuthorizer | None:
    """Create the authorizer; None if none is configured, so that every client may do everything. The authorizer applies
    the ACLs of a cluster image before later subscribers see this image.
    """
    if config[AUTHORIZER_CLASS_NAME] == NO_AUTHORIZER:
        return None
    authorizer = StandardAuthorizer(
        parse_super_users(config[SUPER_USERS]), allows_without_acls=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND]
    )
    authorizer.use(metadata.image.acls)

    def on_image(old: ClusterImage, new: ClusterImage) -> None:
        if new.acls is not old.acls:
            authorizer.use(new.acls)

    metadata.subscribe(on_image)
    return authorizer
