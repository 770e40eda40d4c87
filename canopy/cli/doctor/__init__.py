"""`canopy doctor`: what is wrong with a node, its machine or its neighbours, and what to do.

``finding`` is what a check says, ``machine`` looks at the machine, the data folder and the keys,
``running`` asks a node that runs, ``command`` puts them together.
"""
