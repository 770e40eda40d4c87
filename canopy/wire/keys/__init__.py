"""Keys and certificates of nodes (docs/design/security.md).

Read in this order: ``certificates`` (what is in them, and the id that follows from a key),
``restrictions`` and ``chains`` (what an issuer may sign, and whether a chain keeps to that),
``key_folder`` (the files in a data folder), ``ledger`` (what an issuer has signed, and how much it
may), ``beliefs`` (what a node believes of others, and the one id of a key), ``authority`` (who
signs: root and issuer), ``revocations`` (the signed list of ids that are no longer believed),
``policies`` (the signed policy of tenants), ``tokens`` (invitations), ``enrolment`` (the words
between a node without a valid certificate and its issuer), ``issuer`` (the issuer's side of them),
``join`` (the node's side), ``signer`` (what a node says) and ``rotation`` (root and issuer are
replaced). What a connection does with all that is in canopy/wire/transport/tls. ``seals`` stands
apart: keys of programs, which nodes do not know.

`cryptography` makes and reads keys and certificates, the standard library's `ssl` speaks TLS.
"""
