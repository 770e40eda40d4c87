"""Streams in virtual time, with crashes, cut links and bad disks: `shard_world` has the replicas of
one shard, `producing_world` programs that append to them. Whole nodes are in
harness/stream_world.py.
"""
