"""How a start finds out whether its data directories and its metadata store are what they were.

`data_start` locks the directories, opens the store, compares the two by `identity/comparison.py`, and notes in the
directories what the broker has registered as.
"""
