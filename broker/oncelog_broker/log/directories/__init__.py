"""The data directories of a broker and all the logs in them.

`log_manager` opens, makes, deletes and closes logs; `log_changes` is the part of that which waits for the disk;
`log_checkpoints` writes down offsets of all logs; `data_directory` is one directory with its lock and checkpoints;
`directory_choice` says where a new log is made; `meta_properties` says whose a directory is, `partition_metadata` which
topic id a log belongs to, and `kraft_metadata` what Apache Kafka's own metadata log says of a directory that is taken
over.
"""
