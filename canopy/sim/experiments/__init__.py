"""The papers' figures, and experiments on routing, recovery, timeliness, mass failure."""
