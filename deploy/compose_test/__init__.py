"""`make compose-test`: docker-compose.yml is run, and whatever happens to its containers, each record counts once.

engine      Docker, or Podman in a directory of its own; says why where there is neither
images      the image of the brokers and, where none can be pulled, stand-ins for those that it is made from
stack       the containers of one compose file: up, down, kill, pause, cut off
clients     who writes and reads from the host while things happen
inside      runs in a container beside the brokers: makes an invoice of each order, exactly once
proof       what is there in the end, against what the clients were told
steps       what is done to the containers, in which order
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
