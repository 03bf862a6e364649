"""What a broker does with its logs between requests.

`maintenance` applies retention, flushes, writes checkpoints and forgets silent producers; `cleaning` compacts.
"""
