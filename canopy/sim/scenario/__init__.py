"""One run, described as YAML: nodes, load, faults, stages and result.

Read `scenario` (the description), `run` (its stages: grow, subscribe, publish with faults, rest,
probe, judge), `fault_injector` (starts nodes and injects faults), `result` and `verdict`. Loads:
`workload` (the whole selector language), `range_load` (attributes by a Zipf law and ranges, CBDLO
section 5), `paper_load` (the latter for full nodes, with ranges as wide as are needed).
`recorded_run` is what a trace folder contains, `replay` runs that again in another configuration.
"""
