"""How a start finds out whether its data directories and its metadata store are what they were.

`data_start` locks the directories, opens the store, has the package `identity` compare the two, and notes in the
directories what the broker has registered as.
"""
