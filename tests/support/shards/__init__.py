"""Streams in virtual time, with crashes, cut links and bad disks: `producing_world` has programs
that append to the replicas of harness/shard_world.py. Whole nodes are in harness/stream_world.py.
"""
