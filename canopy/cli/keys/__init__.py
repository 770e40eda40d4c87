"""`canopy keys`: the keys of an overlay, and those with which programs seal payloads (``command``);
the rights of tenants (``policy``), and of programs on other machines (``access``, with the options
and the list of tokens that `canopy gateway` has, too); the audit record (``audit``)."""
