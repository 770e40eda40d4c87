"""The conversation between a program's node and the leaders of a stream's shards.

*Promises*: what a program has at a shard goes on when the shard's leader changes, is silent, or is
out of reach; nothing is asked of a node that is known not to lead; what no honest leader says is
not taken, is counted (`stream_answers_refused`), and makes the node ask who leads; a program that
waits for a majority of a shard's replicas is told so.

*Called by*: `streams.programs.reader` and `streams.programs.group`, whose machines are
`Attachments`; `streams.programs.transaction` and `streams.programs.questions`, which are each an
`AskMachine`; `streams.programs.producer`, with a session for each producer and shard. All of them,
and what copies and forks streams, find leaders through the one `StreamLocator` of a node, which
tells them when the link to a node is lost.

    locator.locate(name)                  # StreamLocated or StreamMissing follows, for all who ask
    locator.leader(name, shard)           # as far as it is known here
    locator.mistaken(name, shard, node)   # it does not lead, or does not answer: ask again

*Read in this order*:

* `pacing`: when things are repeated, asked elsewhere and given up: every number, with its reason.
* `locator`: from a stream's name to the leaders of its shards. `reasons`: why programs are refused,
  and why they wait: every code, from leaders and to programs.
* `session`: the conversation of one program with the leader of one shard, a table of states.
* `attachments`: what programs have at all shards of a stream, with a session for each.
* `ask`: one question to one leader, until there is one answer.

A machine that asks leaders something begins like this (`streams.programs.questions` is one):

    class RowCounts(AskMachine):
        def __init__(self, port, locator):
            super().__init__(port, locator, LookAtCounts())

        def count(self, client, command):  # of a program; begin follows
            self.held.hold(client, command.stream, command)

        def begin(self, client, command, located):
            shard = located.entry.shard(0)
            make = lambda number: AskCount(shard, number)
            question = LeaderQuestion(client, located.name, 0, make, is_reading=True)
            self.ask_all([question], lambda asks: self._reply(client, command, asks[0].answer))

        def on_row_count(self, sender, message):
            if ask := self.asks.get(message.number):
                self.asks.answered(ask, sender, message)

        def on_look(self, timer: LookAtCounts):
            self.asks.look()
"""
