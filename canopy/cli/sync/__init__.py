"""`canopy sync`: databases that are kept consistent over streams (canopy/sync/).

``group`` is the command with all its parts. ``manage`` has `add`, `ls` and `rm`, which look after
the definitions; ``run`` captures and applies until it is stopped; ``verify`` compares both sides;
``demo`` kills it on the way;
``options`` is what they share.
"""
