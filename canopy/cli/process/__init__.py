"""The process of a node: ``node`` runs one, ``stop`` drains and ends it, ``config`` has `canopy
config` and `canopy reload`, which has a running node read its configuration again."""
