"""Which deliveries there should have been, and what became of each: the verdict on a run.

``terms`` and ``selectors`` translate the selectors of the subscribe records to Spark's SQL, without
`matching`, so that the product's index is judged by something else. ``expected`` evaluates them
over all published events: the pairs of event and subscription that match, and what the overlay owed
each. ``deliveries`` joins these with the deliver records: every pair gets one verdict
(delivered, missing, dropped, spurious …) and its number of copies. Read them in this order.
"""
