"""`canopy keys`: the keys of an overlay (``command``)."""
