"""Handlers of topics, and of the settings of topics and brokers.

`metadata` and `describe_topic_partitions` show topics; `create_topics`, `create_partitions` and `delete_topics` change
them. `describe_configs`, `alter_configs` and `incremental_alter_configs` serve settings: `config_resources` resolves
the resource that has the settings, `broker_loggers` has the settings of loggers, `list_config_resources` lists all
resources. `topic_creation` creates topics automatically, through the controller. `services` declares what these
handlers may use.
"""
