"""Services of a node for the shards that it leads.

*Promises*: a service keeps something for a shard from the first request on until the leadership
ends, and nothing beyond: another epoch gets another one, also when the same node leads again. Who
waits gets an answer then, with the new leader if it is known. A shard without requests costs a
service nothing.

*Called by*: `streams.machines`, which builds one machine of each service in every node. How to
write another one is in docs/guide/extending.md. In short::

    class ShardGreetings(LedShard):            # what is kept for one shard, for one epoch
        def on_greeting(self, sender: Peer, message: Greeting) -> None:
            self.when_committed(lambda: self.port.send(sender, Thanks()))

        @classmethod
        def moved(cls, message, leader):       # the answer of a node that does not lead the shard
            return Moved(leader)

    class Greetings(ShardService[ShardGreetings]):
        kind = ShardGreetings

    Greetings(leaderships, hosts.leading)

*Read in this order*:

* `service`: the base: what is kept for each shard that this node leads, the machines that keep it,
  and who tells them what is committed.
* `append/`: rows of producers become chunks. `half`: rows that are durable before they are decided
  to happen.
* `read/`: readings by content, and durable consumers. `table`: the newest row of each key.
  `group/`: rows that members share.
* `capture`: published events that a stream takes in. `copy`: rows of other streams. `fork/`: rows
  that are taken without a majority.
"""
