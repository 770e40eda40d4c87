"""Computes the deliveries that were due, and judges each delivery and the whole run.

``expected`` has the pairs of event and subscription that match (by ``selection/``), and what the
overlay owed each, under the policy of tenants too. ``deliveries`` joins these with the deliver
records: every pair gets one verdict (delivered, missing, dropped, spurious …) and its number of
copies. ``numbering`` finds events and subscriptions that no record has, by gaps in the numbers of
the others, and ``outcome`` is the result of the run: exact, not exact, or not judged. Read them in
this order.
"""
