"""An overlay of real processes under random load and random faults for minutes to hours.

`endurance` is the command; `faults` injects faults, `clients` publish and subscribe, `pressure`
starts programs that flood and crowd nodes, `load` draws events from their numbers, and `oracle`
says which deliveries were due. `churn` is a command of its own: programs that find their nodes
again while these are killed, stopped and sent away, and what gaps tell of what they miss. `days` is
one of simulated overlays: days of slow churn, and what nodes hold then.
"""
