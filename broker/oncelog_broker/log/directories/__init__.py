"""The data directories of a broker and all the logs in them.

`log_manager` opens, creates, deletes and closes logs. When a broker starts, `log_loader` opens the logs of a data
directory, unchanged logs from `closed_logs`, grown logs also from `log_growth`, and `missing_logs` reports logs that
are not there. `log_changes` contains the operations on logs that wait for the disk, `log_upkeep` finds the logs with
periodic work, and `log_closing` syncs and closes all logs when the broker stops. `log_checkpoints` writes the offsets
of all logs to checkpoint files. `future_log` copies a log to another data directory. `data_directory` is one directory
with its lock and checkpoints, and `directory_choice` chooses a data directory for a new log. `meta_properties` says
which broker a directory belongs to, and `partition_metadata` says which topic id a log belongs to. `kraft_metadata`
reads Apache Kafka's own metadata log when a broker takes over Kafka's data directory.
"""
