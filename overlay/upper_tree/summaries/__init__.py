"""Summaries of trees at publishers, and their invalidation before a SUBACK."""
