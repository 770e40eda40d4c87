"""`python -m canopy` is the `canopy` command."""

import sys

from canopy.cli.main import main

sys.exit(main())
