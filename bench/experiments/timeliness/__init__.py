"""The timeliness experiment of the Phoenix paper, with the product's own Node (P6, P7).

`plan` says what is run, `point` runs one mode under one load, `experiment` all of them.
"""
