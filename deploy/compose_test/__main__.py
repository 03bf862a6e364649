"""`make compose-test`."""

import sys

from compose_test.run import main

sys.exit(main())
