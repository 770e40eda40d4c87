"""`canopy stream`: durable streams.

``group`` is the command with its subcommands. ``manage`` has `add`, `ls`, `info` and `rm`, which
ask a node, ``change`` has `edit` and `edit-group`, ``export`` has `get` and `export`; ``read`` and
``share`` are `canopy sub --stream`; ``check`` has `check`, and `verify`, which reads the files of a
shard and asks no node; ``dead`` has dead letters, ``transactions`` is `canopy tx`.
``options`` has the options that `add` and `edit` share.
"""
