"""`canopy sync`: databases that are kept consistent over streams (canopy/sync/).

``group`` is the command with its subcommands. ``manage`` has `add`, `ls` and `rm` of definitions;
``run`` captures and applies until it is stopped; ``verify`` compares both sides; ``demo`` kills
`run` on the way; ``options`` has the options that they share.
"""
