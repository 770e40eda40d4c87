"""The overlay: every protocol of Canopy as a machine without IO.

Read in the order of the data flow: ``machine`` (what a machine is), ``links`` (sessions between two
nodes), ``lower_random`` (the random graph, access points, CRAWL), ``chord`` (clusters on a ring),
``upper_tree`` (attribute trees: publishing and subscribing).
"""
