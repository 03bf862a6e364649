"""`make compose-test`: runs docker-compose.yml, and checks that each record counts once, whatever happens to its
containers.

engine      Docker, or Podman in a directory of its own; says why if neither works
images      the image of the brokers and, if none can be pulled, stand-ins for its base images
stack       the containers of one compose file: up, down, kill, pause, cut off
clients     write and read from the host during the faults
inside      runs in a container beside the brokers: makes an invoice of each order, exactly once
proof       compares the final content with the answers that the clients got
steps       the faults of the containers, in order
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
