"""`canopy keys` and its parts."""

from __future__ import annotations

from canopy.cli.keys.command import keys
from canopy.cli.keys.sealing import seal

keys.add_command(seal)
