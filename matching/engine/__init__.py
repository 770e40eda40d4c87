"""The block engine: many conjunctions in blocks of 512 bits, matched a cache line at a time.

What it promises: exactly the labels of the conjunctions that are true for an event, in microseconds
for a million conjunctions (docs/lab/matching.md), and changes that take microseconds, too. Called
by `matching.index` (single events) and `matching.grouped_index` (batches). This is the theory of
operation; docs/design/matching.md has the same with its reasons and sources.

*The problem.* Which of a million conjunctions of five intervals over twenty attributes does an
event satisfy? Counting satisfied predicates means millions of random additions. Here an event only
visits those that *fail*, 512 at a time, and skips most of them. (Marking the subscriptions that
fail is REIN's idea: Qian, Cao, Zhu and Li, "REIN: a fast event matching approach for content-based
publish/subscribe systems", INFOCOM 2014. Buckets with a check of the candidates at their edges are
those of binned bitmap indexes (Wu, Stockinger and Shoshani, "Breaking the curse of cardinality on
bitmap indexes", SSDBM 2008). The rest, lines, the skip bitmap, edges found from neighbouring rows
and the placement tree, is our own.)

*A column* is an attribute. Its values are encoded as integers in the order of the value space
(`codes`), and these are mapped to 128 *rows* (64 if few subscriptions use it): row 0 stands for
"the event has no such attribute", two rows at the ends are empty, and the others are equi-depth
buckets of the ends of the subscriptions' intervals.

*A block* is 512 subscriptions. For each column and row it has one line of 512 bits: which of them
certainly fail if the event's value lies in that row. An event lies in one row per column, so ORing
one line per column gives all that certainly fail; the zero bits are the candidates::

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

    skip bitmap: per column and row one line for each segment, all of them side by side, with a bit
    for each word of 64 subscriptions
                                           | 8 bits    | 8 bits    | … | 8 bits    |  = 512 bits

    per block                              used: the columns that some subscription in it uses
    per subscription                       record: half a line (up to five parts) or a whole one;
                                           exact: its codes in full; label; leaf; a bit in live and
                                           one in always

*The skip bitmap* has a bit for each word of 64 subscriptions in each row, set if all of them fail
there. It is ORed first; a block all of whose words are dead is not read. Of the others only the
columns are read that some subscription in the block uses.

*The placement tree* makes the skip bitmap effective: it puts subscriptions that use the same
columns with intervals in the same rows into the same words. It is grown greedily over all
subscriptions of a bulk load; later ones descend to a leaf, each leaf is assigned a block with room,
and a full block is split.

*Edges.* A candidate with an end of an interval in the event's bucket may fail nevertheless. It
fails in the row before or in the row behind, so ORing these two lines separates the *sure*
candidates from the edges; in a block with few candidates all are treated as edges. The record of an
edge is compared with the event: first 16 bits of each code (the row, and the offset in its bucket),
and the whole codes where these are equal. What codes cannot express (a residual, several intervals,
NOT, LIKE inside a word, integers beyond 2**53, more parts than a record has) sets the flag
*python*, and the conjunction itself is evaluated.

*Changes.* Removing clears a bit in `live`. Inserting writes one bit in each row of the columns
used, and clears bits of the skip bitmap, so that the skip bitmap can only err towards reading.
Later `tighten` sets the bits that can be set again. Memory grows by a segment of 64 blocks at a
time, so nothing is ever copied but the skip bitmap and tables of a few bytes per subscription.

*Drift.* The buckets are made for the first subscriptions. Whenever as many have been inserted as
there are, each column is checked; where the ends of intervals crowd in few buckets, the
column gets other buckets, and what depends on them is rewritten (`kernels.updates`).

Read in this order: `kernels.layout` (sizes, and what lies where), `codes` (values as integers),
`columns` (attributes and their buckets), `events` (how events come to the kernels), `kernels` (the
compiled code, with a manual of its own), `memory` (what the kernels work on), `blocks` (which leaf
has which block), `block_engine`, `group_matcher`. Little-endian machines are assumed: a record's
columns are read as one word.
"""
