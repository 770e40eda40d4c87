"""Who may say what tenants may: signatures, versions and files of the policy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from canopy.wire.keys.authority import issuer_of, revoke
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.policies import parse_policy, read_policy, sign_policy, write_policy
from matching import compile_selector
from overlay.rights import Role
from overlay.tenants.policy import Confinement, Policy, PolicyError, TenantPolicy
from tests.support.real.keys import Keys

TEXT = """
version: 3
default: deny
tenants:
  acme:
    publish: "type LIKE 'acme.%'"
    subscribe: "region = 'eu' AND secret = FALSE"
    quota: {events: 5000, subscriptions: 1000}
"""
POLICY = Policy(3, {"acme": TenantPolicy("x = 1", "x = 1")})


def signed(folder: KeyFolder, policy: Policy = POLICY, ago: float = 0.0) -> bytes:
    return sign_policy(policy, "canopy", folder.key(), folder.chain(), time.time() - ago)


def test_a_file_says_what_it_means_and_nothing_else() -> None:
    policy = parse_policy(TEXT)
    assert policy.tenants["acme"].quota.subscriptions == 1000
    assert parse_policy(write_policy(policy)) == policy
    for wrong, reason in (
        (TEXT.replace("deny", "allow"), "default"),
        (TEXT.replace("publish", "publishes"), "publishes"),
        (TEXT.replace("default", "defaults"), "unknown: defaults"),
        (TEXT.replace("type LIKE", "type LIK"), "tenant acme, publish"),
        (TEXT.replace("acme:", '"a b":'), "tenant 'a b'"),
        (TEXT.replace("3", "0", 1), "version"),
        ("- 1", "expected"),
        ("a: [", "not YAML"),
        (TEXT.replace("5000", "-1"), "events"),
    ):
        with pytest.raises(PolicyError, match=reason):
            parse_policy(wrong)


EXPORTING = """
version: 4
tenants:
  acme:
    publish: "type LIKE 'acme.%'"
    exports:
      prices: {where: "type = 'acme.price' OR type = 'gamma.secret'", to: [beta]}
  beta:
    subscribe: "type LIKE 'beta.%'"
  gamma:
    publish: "type LIKE 'gamma.%'"
"""


def test_an_export_opens_what_its_tenant_may_publish_and_nothing_else() -> None:
    policy = parse_policy(EXPORTING)
    assert parse_policy(write_policy(policy)) == policy
    known = Confinement(policy)
    for kind, seen in (
        ("beta.x", True),
        ("acme.price", True),
        ("acme.offer", False),
        ("gamma.secret", False),
    ):
        assert known.may_see("beta", {"type": kind}) is seen
        narrowed = compile_selector(known.narrow("beta", "type IS NOT NULL"))
        assert narrowed.matches({"type": kind}) is seen
        assert not known.may_see("acme", {"type": kind})
        assert not known.may_see("gamma", {"type": kind})
    assert "acme.price" in known.remains("beta", "type = 'gamma.secret'").denial


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (EXPORTING.replace("[beta]", "[betta]"), "export prices: to betta"),
        (EXPORTING.replace("[beta]", "[acme]"), "export prices: to itself"),
        (EXPORTING.replace("[beta]", "[]"), "to"),
        (EXPORTING.replace("type = 'acme.price'", "type = "), "tenant acme, export prices"),
        (EXPORTING.replace("where", "what"), "what"),
        (EXPORTING.replace("type = 'acme.price' OR", " OR ".join(f"a{n} = 1" for n in range(17))
         + " OR"), "export prices: an OR of 18"),
        (EXPORTING.replace("type LIKE 'beta.%'", " OR ".join(f"a{n} = 1" for n in range(16))),
         "tenant beta, subscribe with what others export"),
    ],
)  # fmt: skip
def test_an_export_that_means_nothing_is_refused(wrong: str, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        parse_policy(wrong)


def test_without_the_right_to_publish_a_tenant_exports_nothing() -> None:
    policy = parse_policy(EXPORTING.replace("publish: \"type LIKE 'acme.%'\"", 'publish: ""'))
    assert not Confinement(policy).may_see("beta", {"type": "acme.price"})


def test_admins_and_issuers_sign_policies_and_nobody_else(tmp_path: Path) -> None:
    keys, others = Keys(tmp_path / "a"), Keys(tmp_path / "b")
    roots = keys.issuer.chain("roots")
    admin = keys.folder("admin", Role.ADMIN)
    assert read_policy(signed(admin), "canopy", roots) == POLICY
    issuer = issuer_of(keys.issuer)
    assert read_policy(
        sign_policy(POLICY, "canopy", issuer.key, issuer.chain, time.time()), "canopy", roots
    )
    for data, reason in (
        (signed(keys.folder("voter")), "signed by a voter"),
        (signed(others.issuer), "nobody whom this overlay believes"),
        (signed(admin, ago=10 * 86_400), "no valid certificate when"),
        (signed(admin)[:-40], "no signed policy"),
        (signed(admin).replace(b"x = 1", b"x < 1"), "InvalidSignature"),
        (sign_policy(POLICY, "other", admin.key(), admin.chain(), time.time()), "overlay 'other'"),
    ):
        with pytest.raises(PolicyError, match=reason):
            read_policy(data, "canopy", roots)
    own = admin.certificate()
    assert own is not None
    with pytest.raises(PolicyError, match="revoked"):
        read_policy(signed(admin), "canopy", roots, [own.principal.id])


def test_a_policy_never_goes_back(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    security = keys.security()
    store = security.policy
    assert store.current() == (0, b"")
    older = Policy(2, POLICY.tenants)
    assert store.accept(signed(keys.issuer)) == 3
    assert store.accept(signed(keys.issuer, older)) == 3
    assert store.accept(b"garbage") == 3
    keys.issuer.write_document(
        "policy", signed(keys.issuer, older)
    )  # somebody puts the older file back
    security.load()
    assert store.policy == POLICY
    assert keys.issuer.policy("canopy")[0] == POLICY


def test_a_policy_file_that_is_not_genuine_permits_nothing(tmp_path: Path) -> None:
    """The node starts all the same, says so, and takes the next one that is signed."""
    keys = Keys(tmp_path)
    keys.issuer.write_document("policy", b"\x93garbage")
    security = keys.security()
    assert security.policy.current() == (0, b"")
    assert "tenants may nothing: no signed policy" in security.beliefs.faults[0]
    assert Confinement(security.policy.policy).denial("acme")
    assert security.policy.accept(signed(keys.issuer)) == 3
    assert not security.beliefs.faults


def test_a_policy_outlives_its_signer_where_it_is_and_is_not_believed_by_newcomers(
    tmp_path: Path,
) -> None:
    keys = Keys(tmp_path)
    admin = keys.folder("admin", Role.ADMIN)
    own = admin.certificate()
    assert own is not None
    assert keys.security().policy.accept(signed(admin)) == 3
    revoke(keys.issuer, (own.principal.id,))
    assert keys.security().policy.policy == POLICY
    newcomer = keys.folder("new")
    newcomer.write_document("revoked", keys.issuer.revocations("canopy")[1])
    store = keys.security(newcomer).policy
    assert store.accept(signed(admin)) == 0
    assert store.accept(signed(keys.issuer)) == 3
