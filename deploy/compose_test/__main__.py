"""The program that `make compose-test` runs."""

import sys

from compose_test.run import main

sys.exit(main())
