"""`canopy keys`: the keys of an overlay, and those of programs that seal (``command``); what
tenants may (``policy``), and programs on other machines (``access``); the record of all that
(``audit``)."""
