"""Canopy: a content-based publish/subscribe overlay of peers, and the tools around its core."""
