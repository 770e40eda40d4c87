"""`canopy stream`: durable streams.

``group`` is the command with all its parts. ``manage`` has `add`, `ls`, `info` and `rm`, which ask
a node, ``change`` has `edit`, ``export`` has `get` and `export`; ``read`` is what `canopy sub
--stream` does; ``verify`` reads the files of a shard and asks none.
"""
