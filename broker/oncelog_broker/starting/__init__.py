"""The first part of a broker's start: checks whether the data directories and the metadata store are the same as at the
broker's previous start.

`data_start` locks the directories, opens the store, compares directories and store with the package `identity`, and
writes each registration of the broker into the identity notes (files `oncelog.identity`) of the directories.
"""
