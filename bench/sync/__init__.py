"""`canopy sync` between real databases in real processes: ``measure``, also beside ``debezium``;
``soak``; ``processes`` runs the sides of a sync; ``demo``.
"""
