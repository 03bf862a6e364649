"""Implements `make compose-test`: runs docker-compose.yml, and checks that each record counts once, whatever happens to
its containers.

- `engine` provides Docker, or Podman with its data in a separate directory; if neither works, it reports why.
- `images` provides the image of the brokers and, if none can be pulled, stand-ins for its base images.
- `stack` controls the containers of one compose file: up, down, kill, pause, disconnect.
- `clients` write and read from the host during the faults.
- `inside` runs in a container beside the brokers, and writes an invoice for each order, exactly once.
- `proof` compares the final content with the responses that the clients got.
- `steps` has the faults of the containers, in order.
"""

import integration_folders  # noqa: F401  where the helpers that the modules import are
