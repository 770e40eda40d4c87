"""`canopy pub`: events of files, pipes and arguments on their way into the overlay or a stream.

``pub`` is the command. ``feed_batches`` opens what it names and reads it ahead, in batches
(`canopy/feeds/` has the formats), and counts; ``stream_append`` writes to streams, ``dry_run``
shows where events would go. ``schema`` holds events against JSON Schemas.
"""
