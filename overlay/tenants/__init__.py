"""Confines an overlay's tenants to what they may publish and see, by content
(docs/design/security.md#policy).

Promises: only what a policy is true for passes, whatever a tenant asks for or says. Without a
policy nothing passes.

Read in this order: ``policy`` (the document, and what it makes of selectors and events),
``confinement`` (what becomes of each message of a tenant; streams/tenant_rules has the rows of
streams), ``quotas`` (how much a leaf may ask for) and ``guard`` (stands between links and machines,
and asks all of these, and overlay/rights, about each message).
The document is spread by overlay/lower_random/documents, and an owner follows its changes in
overlay/upper_tree/owner/registrations/policy_changes.
"""
