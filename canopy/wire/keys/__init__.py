"""Keys and certificates of nodes (docs/design/security.md).

Read in this order: ``certificates`` (their contents, the id that follows from a key, and signatures
with it), ``restrictions`` and ``chains`` (what an issuer may sign, and whether a chain complies),
``key_folder`` (the files in a data folder), ``ledger`` (the certificates an issuer has signed, and
its limits), ``beliefs`` (the roots, revocations and policy that a node trusts, and the one id of a
key), ``authority`` (root and issuer), ``revocations`` (the signed list of revoked ids),
``policies`` (the signed policy of tenants), ``tokens`` (invitations), ``enrolment`` (the messages
between a node without a valid certificate and its issuer), ``issuer`` (the issuer's side of them),
``join`` (the node's side) and ``rotation`` (replacing root and issuer). Connections use them in
canopy/wire/transport/tls. ``seals`` is separate: keys of programs, which nodes do not have.

`cryptography` makes and reads keys and certificates, the standard library's `ssl` does TLS.
"""
