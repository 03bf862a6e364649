"""Handlers of topics, and of the settings of topics and brokers.

`metadata` and `describe_topic_partitions` show topics; `create_topics`, `create_partitions` and `delete_topics` change
them. `describe_configs`, `alter_configs` and `incremental_alter_configs` handle settings, `config_resources` finds the
owner of settings. `topic_creation` creates topics that no client asked for by name: by the controller, wherever that
is. `services` declares what these handlers may use.
"""
