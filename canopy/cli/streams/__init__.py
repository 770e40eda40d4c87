"""`canopy stream`: durable streams.

``group`` is the command with all its parts. ``manage`` has `add`, `ls`, `info` and `rm`, which ask
a node; ``verify`` reads the files of a shard and asks none.
"""
