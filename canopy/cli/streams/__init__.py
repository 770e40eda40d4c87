"""`canopy stream`: durable streams.

``group`` is the command with all its parts. ``manage`` has `add`, `ls`, `info` and `rm`, which ask
a node, ``change`` has `edit`, ``export`` has `get` and `export`; ``why`` is `canopy why --stream`,
``read`` `canopy sub --stream`; ``verify`` reads the files of a shard and asks none.
"""
