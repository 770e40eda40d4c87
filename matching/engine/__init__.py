"""The fast engine: many conjunctions in blocks of 512 bits, matched a cache line at a time.

The theory of operation, and where to read on.

*The question.* Of a million conjunctions of five intervals on twenty attributes, which does an
event satisfy? Counting touches every satisfied predicate: millions of random additions. Here an
event only looks at who *fails*, 512 at a time, and at most of them not at all.

*A column* is an attribute. Its values become integers in the order of the value space (`codes`),
and these become 128 *rows* (64 if few use it): row 0 is "the event has no such attribute", two rows
hold nothing and close the ends, and the rest are buckets of which each holds equally many ends of
intervals.

*A block* is 512 subscriptions. For each column and row it has one line of 512 bits: who surely
fails when the event's value lies in that row. So an event, which lies in one row per column, ORs
one line per column; whose bit is still zero is a candidate::

    fails, of one segment                    block 0     block 1    …   block 63
                                           +-----------+-----------+---+-----------+
    column 0   row 0   attribute absent    | 512 bits  | 512 bits  | … | 512 bits  |
               row 1   below everything    +-----------+-----------+---+-----------+
               row 2   first bucket        |           |           |   |           |
      event -> row 3                       |  ########## these lines are read ###  |
               …                           +-----------+-----------+---+-----------+
               row 127 above everything    |           |           |   |           |
                                           +-----------+-----------+---+-----------+
    column 1   row 0                       |           |           |   |           |
               …                           +-----------+-----------+---+-----------+

    dead, the summary: per column and row one line for each segment, all of them side by side, with
    a bit for each word of 64 subscriptions
                                           | 8 bits    | 8 bits    | … | 8 bits    |  = 512 bits

    per block                              used: the columns that somebody in it uses
    per subscription                       record: half a line (up to five parts) or a whole one;
                                           exact: its codes in full; label; leaf; a bit in live and
                                           one in always

*The summary* is the same thing once more: a bit for each 64 subscriptions, set when all of them
fail. It is ORed first; a block without a living word is not looked at. Of one that is, only the
columns are read that somebody in it uses.

*The tree* (`tree`) is what makes the summary sharp: it puts subscriptions that use the same columns
in the same places into the same words. It is grown greedily over all that are put in at once; later
ones descend to a leaf, each leaf knows the block with room for it, and a block that is full hands
half of its leaves to a fresh one.

*Edges.* A candidate with an end of an interval in the event's bucket may fail all the same. It
fails in the row before or in the row behind, so ORing these two lines tells the *sure* candidates
from the edges; where a block has few candidates all are treated as edges. An edge's record is
compared with the event: first 16 bits of each code (its row, and where in the bucket it lies), and
the whole ones where these are equal. What no code can say (a residual, several intervals, NOT, LIKE
inside a word, integers beyond 2**53, more parts than a record has) carries the flag *python*, and
its conjunction is asked itself.

*Changes.* Taking out clears a bit in `live`. Putting in writes one bit in each row of its columns
and clears summary bits; these only ever err towards looking, and `tighten` sets what can be set
again. Memory grows by a segment of 64 blocks at a time, so nothing but the summary and tables of a
few bytes per subscription is ever copied.

*Drift.* Buckets are made for the first subscriptions. Each time as many have been put in as there
are, each column is looked at (`drift`): where its ends crowd in few buckets it gets others, and
what depends on them is written anew (`rebound`).

Read in this order: `layout` (sizes and addresses), `codes` (values as integers), `columns`
(attributes and their rows), `events` (how they come to the kernels); of the compiled code `lines`
(512 bits as a value), `rows` (codes as rows), `search` and `records` (the kernel of a match:
blocks, then edges), `grouping` (many events in one call, and whose the labels are), `summaries` and
`edit` (the kernels of a change), `rebound` (other rows for a column), `tree` (who is put together);
of the bookkeeping in Python `kernels` (the door to compiled code), `memory` (what they work on),
`blocks` (which leaf has which block), `engine`, `drift`, `batch`. `compiling` makes machine code of
the kernels, once per machine, and `kept` keeps it: a process that only matches imports neither
numba nor a kernel's text. Little-endian machines are assumed: a record's columns are read as one
word.

Marking who fails instead of counting who holds is REIN's idea; the lines, the summary, the edges
from neighbouring rows and the tree are our own.
"""
