"""`canopy doctor`: what is wrong with a node, its machine or its neighbours, and what to do.

``machine`` says what a check is, and looks at the machine, the data folder and the keys;
``live_node`` asks a node that runs, and looks at its streams; ``command`` puts them together.
"""
