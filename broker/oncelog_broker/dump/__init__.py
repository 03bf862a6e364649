"""`oncelog dump`: shows the files of a log directory, like Kafka's DumpLogSegments (S57).

`rows` are the items of a dump; `log_file`, `index_files`, `producer_files` and `checkpoint_files` each read some kinds
of file as a stream of rows, `decoders` decodes records of internal topics; `files` finds the kind of a file by its
name; `command` prints. Files are opened read-only, so the directory may belong to a running broker: then its last batch
may be incomplete, and the indexes of the active segment may be behind.
"""
