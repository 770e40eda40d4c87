"""`canopy bench`: what an overlay does for its user, measured from outside.

``measuring`` publishes and counts, ``command`` has the options and prints. (The project's own
measurements, of one machine and one commit against another, are in bench/.)
"""
