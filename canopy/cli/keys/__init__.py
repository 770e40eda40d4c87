"""`canopy keys`: the keys of an overlay (``command``), and what tenants may (``policy``)."""
