"""An overlay of real processes under random load and random faults for minutes to hours.

`endurance` is the command; `faults` injects faults, `clients` publish and subscribe, `pressure`
starts programs that flood and crowd nodes, `load` draws events from their numbers, and `oracle`
says which deliveries were due.
"""
