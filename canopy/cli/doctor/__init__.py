"""`canopy doctor`: find faults of a node, its machine and its neighbours, and say what to do.

``machine`` defines checks, and looks at the machine, the data folder and the keys; ``live_node``
asks a running node, and looks at its streams; ``command`` runs all of them.
"""
