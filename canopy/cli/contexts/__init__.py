"""Named contexts: names for the data folders of nodes, so that `--connect NAME` means one.

``store`` reads and writes them, ``command`` is `canopy context`.
"""
