"""Streams: replicas of a shard searched by seed for what breaks their promises (`search`), and
faults planted in them (`faults`)."""
