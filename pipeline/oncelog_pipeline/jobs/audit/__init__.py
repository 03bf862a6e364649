"""Proving a topic free of gaps and duplicates: `oncelog pipeline audit`.

chains.py          (pure) batches joined to chains in which nothing is wrong, and what is wrong between chains
chain_reading.py   the batches of a range of offsets as chains
"""
