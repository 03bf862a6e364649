"""`oncelog dump`: shows the files of a log directory, as Kafka's DumpLogSegments does (S57).

`rows` is what dumping yields; `log_file`, `index_files`, `producer_files` and `checkpoint_files` each read some kinds
of file as a stream of rows, `decoders` the records of the internal topics; `files` knows which file is which kind;
`command` prints. Files are opened for reading only, so a directory may belong to a running broker: its last batch may
then be cut, and indexes of the active segment be behind.
"""
