"""Entry point of the nursery: `python -m rla.envs.pool <socket> <parent>`."""

import sys

from rla.envs.pool.nursery import main

sys.exit(main(sys.argv[1:]))
