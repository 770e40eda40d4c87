"""From a match to the interested nodes (C11, M1, P3; CBDLO section 4, *second conversion*).

Promises: every interested node is sent an event once per host that matched it, by the host or by a
delegate; no node sends more copies of an event than `tree.fan_out`, whatever it is to the event
(but for one at a time, where it could else send none). What a lost or silent link does not carry
goes another way as long as its node may be alive, is held until that is in reach again, or is given
up, traced and reported to it; the interested node removes what comes twice.

``host`` calls `Deliveries`; ``publisher`` counts its visits in the same `CopyBudget`;
``subscriber`` emits `Delegated` for what it has to pass on.

Read in this order:

* ``fan_out``: recipients and delegates' shares, by which delegate a node was sent something last,
  and the budget of copies; ``event_counts`` counts them.
* ``deliveries``: collects what leaves in one turn.
* ``delegation``: passes on, gives back, sends again.
* ``relays``: nodes that are not reached, and who may reach them.
* ``delivery_tokens``: the proof that a delivery is from a host of the node's registrations.
* ``hold``: keeps what is for nodes out of reach, and by which node an event enters another
  region; ``held_deliveries`` has the queues.
* ``gap_notices``: notifies nodes of what was given up.
* ``constants``: the measures of all that.

docs/design/delivery.md has the reasons.
"""
