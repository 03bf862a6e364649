"""The first part of a start: checks whether data directories and metadata store are the same as at the previous start
of this broker.

`data_start` locks the directories, opens the store, compares directories and store with the package `identity`, and
writes each registration into the notes (files `oncelog.identity`) of the directories.
"""
