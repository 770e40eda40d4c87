"""Random scenarios by seed until a check fails, and the search for a smaller failing one.

`soak` draws a scenario from a seed, with `member_failures` (deaths within a cluster);
`fault_pairs` lists each fault and each pair of faults; `shrink` makes a failing scenario
smaller (delta debugging). `canopy sim soak` and `canopy sim pairs` call them.
"""
