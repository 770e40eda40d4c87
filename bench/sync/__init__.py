"""`canopy sync` between real databases in real processes: ``soak``, ``processes``, ``demo``."""
