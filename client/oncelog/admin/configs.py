"""Describes and changes the configuration of topics and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, sorted_out
from oncelog.admin.resources import AlterConfig, ConfigEntry, ConfigResource, by_node, config_entry, config_resource


async def describe_configs(
    calls: Calls,
    resources: Iterable[ConfigResource],
    *,
    keys: Sequence[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Return the settings of each resource: all keys, or only the named keys. Raises KafkaError, PartialFailure."""
    from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest

    async def ask(resources: list[ConfigResource]) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        answers = []
        for node_id, part in by_node(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in part
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            answers += (await calls.send_to(node_id, request)).results
        return sorted_out(
            (
                config_resource(answer.resource_type, answer.resource_name),
                answer.error_code,
                answer.error_message,
                {config.name: config_entry(config) for config in answer.configs},
            )
            for answer in answers
        )

    return await calls.each(resources, ask)


async def incremental_alter_configs(
    calls: Calls, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
) -> None:
    """Change only the named keys of each resource; other keys keep their values. Raises KafkaError, PartialFailure."""
    from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource
    prepared = {
        resource: [
            wanted.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
            for change in changes_of
        ]
        for resource, changes_of in changes.items()
    }

    async def ask(resources: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
        answers = []
        for node_id, part in by_node(resources).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    wanted(resource_type=resource.type, resource_name=resource.name, configs=prepared[resource])
                    for resource in part
                ],
                validate_only=validate_only,
            )
            answers += (await calls.send_to(node_id, request)).responses
        return _altered(answers)

    await calls.each(changes, ask)


async def alter_configs(
    calls: Calls, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool = False
) -> None:
    """Set these keys and *reset all other keys* of each resource. In most cases, use `incremental_alter_configs`
    instead.

    Raises KafkaError, PartialFailure.
    """
    from oncelog_protocol.messages.alter_configs import AlterConfigsRequest

    wanted = AlterConfigsRequest.AlterConfigsResource

    async def ask(resources: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
        answers = []
        for node_id, part in by_node(resources).items():
            request = AlterConfigsRequest(
                resources=[
                    wanted(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            wanted.AlterableConfig(name=name, value=value) for name, value in configs[resource].items()
                        ],
                    )
                    for resource in part
                ],
                validate_only=validate_only,
            )
            answers += (await calls.send_to(node_id, request)).responses
        return _altered(answers)

    await calls.each(configs, ask)


def _altered(answers: list[Any]) -> Outcomes[ConfigResource, None]:
    return sorted_out(
        (config_resource(answer.resource_type, answer.resource_name), answer.error_code, answer.error_message, None)
        for answer in answers
    )
