"""`python -m cli` is `canopy`."""

import sys

from cli.main import main

sys.exit(main())
