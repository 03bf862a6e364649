"""What the cluster is: brokers, topics, leaders, settings, producer ids.

`store.py` says what a metadata store does, `embedded.py` is one (on `tree.py`); `paths.py` and `payloads.py` say what
lies where in it; `reader.py` reads that into the immutable `image.py`, which `cache.py` keeps current. A broker joins
through `registration.py` and gets producer ids from `producer_ids.py`. `topic_names.py` has the rules of names.
"""
