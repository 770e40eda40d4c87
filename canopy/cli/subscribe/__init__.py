"""`canopy sub`: subscribe, and print matching events.

``sub`` is the command, ``delivery`` prints deliveries, ``difference`` is `canopy sub --diff`.
`canopy.cli.streams` reads streams for `canopy sub --stream`.
"""
