"""Handlers of topics, and of the settings of topics and brokers.

`metadata` and `describe_topic_partitions` show topics; `create_topics`, `create_partitions` and `delete_topics` change
them. `describe_configs`, `alter_configs` and `incremental_alter_configs` are about settings: `config_resources` says
whose settings those are, `broker_loggers` has those of loggers, `list_config_resources` lists all resources.
`topic_creation` creates topics that no client asked for by name: by the controller, wherever that is. `services` has
what these handlers may use.
"""
