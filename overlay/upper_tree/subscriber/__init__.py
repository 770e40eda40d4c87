"""The subscriber's side: registers local subscriptions, and shows what is delivered (C8, C9).

What a subscriber promises: `SubscriptionsReady` comes when every conjunction of a subscription is
acknowledged by an owner; leases are renewed while the subscription lasts; and each event that
matches is shown once per subscription. CBDLO section 4 has the counting algorithm; pivot routing
is ours (docs/design/delivery.md).

``registrar`` finds the owners and registers, with ``renewals``, which knows since when the leases
ran for certain (``local_registrations`` has what there is, and asks owners to end what has ended
here); ``receiver`` counts (in counting routing), removes
duplicates (of the last `tree.dedupe` identities), checks the whole predicate once more, and hands
over, and says by ``arrival_lookups`` how an event came; ``publication_order`` lets events wait for
earlier ones of their publisher. ``constants`` has every number that is no setting. Called by
clients/."""
