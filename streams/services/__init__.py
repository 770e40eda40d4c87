"""What a node offers for the shards that it leads.

*Promises*: a service keeps something for a shard from the first request on until the leadership
ends, and nothing beyond: another epoch gets another one, also when the same node leads again. Who
waits is answered then, and is told who leads instead if that is known.

*Called by*: `streams.machines`, which builds one machine of each service in every node.

*Read in this order*:

* `led_shards`: the base: what is kept for each shard that this node leads, by turns, and the
  machines that keep it.
* `append/`: rows of producers become chunks. `half/`: rows that are durable before it is decided
  whether they happen.
* `read/`: readings by content, and durable consumers. `table/`: the newest row of each key.
  `group/`: rows that members share.
* `capture/`: published events that a stream takes in. `copy/`: rows of other streams. `fork/`: rows
  that are taken without a majority.
"""
