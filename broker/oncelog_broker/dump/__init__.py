"""`oncelog dump`: shows the files of a log directory, like Kafka's DumpLogSegments (S57).

`rows` has the classes for the output: rows, notices and faults. `log_file`, `index_files`, `producer_files` and
`checkpoint_files` each read some kinds of files as a stream of rows. `decoders` decodes records of internal topics,
`files` finds the kind of a file by its name, and `command` prints the rows. Files are opened read-only, so the
directory may belong to a running broker. While a broker writes the files, the last batch may be incomplete, and the
indexes of the active segment may lag behind the log.
"""
