"""What an issuer has signed and how much it may; restricted issuers from the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from canopy.cli.doctor.machine import look_at_keys
from canopy.cli.main import canopy
from canopy.wire.audit import verify
from canopy.wire.config import NodeConfig
from canopy.wire.keys.authority import invite, issuer_of, make_issuer
from canopy.wire.keys.certificates import DAY, Holder, KeyFolderError, pem
from canopy.wire.keys.enrolment import Enrol, Issued, RenewCertificate, claim
from canopy.wire.keys.issuer import Issuing
from canopy.wire.keys.join import keep
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.ledger import ALL, COMPACT_AFTER, HOUR, KEPT_FOR, Ledger, Limit, LimitError
from canopy.wire.keys.restrictions import Restriction, RestrictionError, extension
from canopy.wire.keys.rotation import finish, rotate
from canopy.wire.keys.tokens import read_token
from overlay.rights import Role
from tests.canopy.wire.keys.test_wire_keys import NONCE, greets
from tests.support.real.keys import Keys

NOW = 1_800_000_000.0


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def enter(
    ledger: Ledger, number: int, now: float = NOW, tenant: str = "acme", **more: object
) -> int:
    """Have key `number` signed; its place."""
    generation = int(str(more.pop("generation", 1)))
    holder = Holder("canopy", Role.LEAF, tenant, generation)
    revoked, restriction = more.pop("revoked", ()), more.pop("restriction", None)
    found = ledger.enter(holder, key(number), now, revoked, restriction, **more)  # type: ignore[arg-type]
    return found.place


def test_new_ids_are_bounded_in_all_and_by_the_hour(tmp_path: Path) -> None:
    """By tenant and together; renewals count as nothing new; what has ended is free again."""
    ledger = Ledger(tmp_path)
    ledger.set_limit("acme", Limit(ids=3, hour=2))
    ledger.set_limit(ALL, Limit(ids=4))
    enter(ledger, 1)
    enter(ledger, 2)
    for _ in range(3):
        enter(ledger, 1, NOW + 1)
    with pytest.raises(LimitError, match="2 new ids of the tenant acme an hour"):
        enter(ledger, 3, NOW + 2)
    enter(ledger, 4, NOW + 2, "beta")
    enter(ledger, 3, NOW + HOUR + 1)
    with pytest.raises(LimitError, match="signs 4 ids at most"):
        enter(ledger, 5, NOW + 3 * HOUR, "beta")
    ledger.set_limit(ALL, Limit())
    assert list(ledger.limits()) == ["acme"]
    with pytest.raises(LimitError, match="signs 3 ids of the tenant acme at most"):
        enter(ledger, 5, NOW + 3 * HOUR)
    signed = ledger.signed()[key(1).hex()]
    enter(ledger, 5, NOW + 3 * HOUR, revoked=[signed.node])
    enter(ledger, 6, NOW + 3 * HOUR + KEPT_FOR)  # nobody has renewed meanwhile


def test_an_invitation_is_used_so_often_an_hour(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    enter(ledger, 1, invitation="one", per_hour=1)
    enter(ledger, 1, invitation="one", per_hour=1)  # has not heard the answer
    with pytest.raises(LimitError, match="used 1 times an hour"):
        enter(ledger, 2, invitation="one", per_hour=1)
    enter(ledger, 2, invitation="two", per_hour=1)
    enter(ledger, 3, NOW + HOUR, invitation="one", per_hour=1)


def test_a_new_generation_is_a_new_id(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.set_limit(ALL, Limit(hour=2))
    enter(ledger, 1)
    enter(ledger, 2)
    with pytest.raises(LimitError, match="2 new ids an hour"):
        enter(ledger, 1, generation=2)
    enter(ledger, 1, NOW + HOUR, generation=2)
    with pytest.raises(LimitError, match="later generation"):
        enter(ledger, 1, NOW + HOUR)
    assert len(ledger.live(NOW + HOUR, ())) == 2


def test_what_was_signed_is_there_after_a_crash_and_does_not_grow(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    few = Restriction(("leaf",), None, 9)
    assert [enter(ledger, number, restriction=few) for number in range(1, 5)] == [1, 2, 3, 4]
    with (tmp_path / "signed").open("ab") as file:
        file.write(b'{"key":"00')  # a line that was cut off
    again = Ledger(tmp_path)
    assert len(again.signed()) == 4
    for at in range(2 * COMPACT_AFTER):
        assert enter(again, 1 + at % 5, NOW + at, restriction=few) == 1 + at % 5
    assert len((tmp_path / "signed").read_bytes().splitlines()) <= 2 * 5 + COMPACT_AFTER + 1
    assert sorted(one.place for one in again.signed().values()) == [1, 2, 3, 4, 5]
    (tmp_path / "limits.json").write_bytes(b"garbage")
    with pytest.raises(LimitError, match="cannot read"):
        enter(again, 9, restriction=few)
    enter(again, 1, restriction=few)  # who is there renews


def test_a_restriction_is_written_only_if_it_can_be_read() -> None:
    for restriction in (
        Restriction(("king",)),
        Restriction(("leaf",), tuple(f"{n:0>120}" for n in range(64)) * 2),
    ):
        with pytest.raises(RestrictionError):
            extension(restriction)


@pytest.mark.parametrize("names", [0, 1, 2, 20])
def test_a_restriction_is_read_back(tmp_path: Path, names: int) -> None:
    """Of each length that DER writes in another way."""
    wanted = Restriction(
        ("leaf", "member"), tuple(f"tenant-{n:0>20}" for n in range(names)) or None
    )
    keys = Keys(tmp_path)
    folder = KeyFolder(tmp_path / "restricted")
    made = make_issuer(keys.issuer, folder, wanted, 30.0, time.time())
    assert made.restriction == issuer_of(folder).restriction == wanted


def test_a_restricted_issuer_needs_the_roots_key(tmp_path: Path) -> None:
    keys, folder = Keys(tmp_path), KeyFolder(tmp_path / "restricted")
    with pytest.raises(KeyFolderError, match="has the keys of another node"):
        make_issuer(keys.issuer, keys.folder("b"), Restriction(("leaf",)), 1.0, time.time())
    root = keys.issuer.path / "root.key"
    root.write_bytes((Keys(tmp_path / "other").issuer.path / "root.key").read_bytes())
    with pytest.raises(KeyFolderError, match="is not the key of the root"):
        make_issuer(keys.issuer, folder, Restriction(("leaf",)), 1.0, time.time())
    root.unlink()
    with pytest.raises(KeyFolderError, match="put the root's key back"):
        make_issuer(keys.issuer, folder, Restriction(("leaf",)), 1.0, time.time())
    assert not folder.exists


# --- the commands ---


def keys_command(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(canopy, ["keys", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output if code == 0 else str(done.exception)


def shown(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]]
    found = json.loads(keys_command("ls", "--data", folder, "--json"))
    return found


def findings(folder: Path) -> list[tuple[str, str]]:
    return [(one.level, one.what) for one in look_at_keys(NodeConfig(data=str(folder)))]


def test_a_restricted_issuer_from_the_command_line(tmp_path: Path) -> None:
    root, acme = tmp_path / "root", tmp_path / "acme"
    keys_command("init", "--data", root, "--overlay", "o")
    wanted = ("--role", "leaf", "--tenant", "acme", "--ids", "5", "--for", "90d", "--into", acme)
    made = keys_command("issuer", "--data", root, *wanted)
    assert "may sign leaf of acme, 5 ids" in " ".join(made.split())
    (first,) = shown(acme)["issuers"]
    assert (first["roles"], first["tenants"], first["ids"]) == (["leaf"], ["acme"], 5)
    until = first["until"]
    assert isinstance(until, float)
    assert 89 * DAY < until - time.time() < 91 * DAY
    keys_command("limit", "--data", acme, "--per-hour", "2")
    assert shown(acme)["limits"] == {"*": {"ids": 0, "per_hour": 2}}
    assert "2 new ids an hour" in keys_command("ls", "--data", acme)
    where = ("invite", "--data", acme, "--address", "a:1", "--peer", "b:1")
    refused = keys_command(*where, code=1)
    assert "may sign leaf, and this is a voter" in refused
    invited = keys_command(*where, "--role", "leaf", "--tenant", "acme")
    assert read_token(invited).peers == ("b:1",)
    done = CliRunner().invoke(canopy, ["keys", *map(str, where[:-2])])
    assert "a leaf, which names no others" in done.output
    refused = keys_command("revoke", "--data", acme, "0" * 32, code=1)
    assert "does not revoke" in refused
    keys_command("issuer", "--data", root, *wanted)  # in the place of the first
    present, former = shown(acme)["issuers"]
    assert (present["present"], former["present"], former["id"]) == (True, False, first["id"])
    assert ("ok", "issuer of leaf of acme, 5 ids until") in [
        (level, text[: len("issuer of leaf of acme, 5 ids until")])
        for level, text in findings(acme)
    ]
    keys_command("revoke", "--data", root, str(present["id"]))
    KeyFolder(acme).write_document("revoked", KeyFolder(root).revocations("o")[1])
    assert ("error", f"this node's issuer {present['id']} was revoked") in findings(acme)
    unrestricted = shown(root)["issuers"]
    assert [one["roles"] for one in unrestricted] == [None]
    for folder in (root, acme):
        assert not verify(folder).damage


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--role", "king"), "expected one of"),
        (("--role", "leaf", "--tenant", "a", "--any-tenant"), "exclude each other"),
        (("--role", "leaf", "--for", "soon"), "no period"),
        (("--role", "leaf", "--tenant", "no/name"), "letters, digits"),
    ],
)
def test_an_issuer_that_means_nothing_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    into = tmp_path / "new"
    done = CliRunner().invoke(
        canopy, ["keys", "issuer", "--data", str(tmp_path), "--into", str(into), *arguments]
    )
    assert done.exit_code != 0
    assert reason in done.output + str(done.exception)
    assert not into.exists()


def test_a_restricted_issuer_goes_over_to_another_root(tmp_path: Path) -> None:
    """Made again before the former root is dropped; its nodes renew as others do."""
    keys, acme, leaf = Keys(tmp_path), KeyFolder(tmp_path / "acme"), KeyFolder(tmp_path / "leaf")
    wanted = Restriction(("leaf",), ("acme",), 9)

    def made() -> None:
        make_issuer(keys.issuer, acme, wanted, 90.0, time.time())

    def ask(word: Enrol | RenewCertificate) -> None:
        answer = Issuing(acme, "canopy").answer(NONCE, word)
        assert isinstance(answer, Issued), answer
        keep(leaf, answer, "canopy", time.time(), token.root if isinstance(word, Enrol) else "")

    def renew() -> None:
        signature = leaf.key().sign(claim(NONCE, leaf.public_key(), 1))
        ask(RenewCertificate(pem(leaf.chain()[0]), 1, leaf.public_key(), signature))

    made()
    token = invite(acme, Role.LEAF, "acme", 1, 60.0, ("a:1",))
    signature = leaf.node_key().sign(claim(NONCE, leaf.public_key(), 1))
    ask(Enrol(token.invitation, token.secret, leaf.public_key(), signature))
    before = keys.security(keys.folder("b"))
    rotate(keys.issuer, time.time())
    assert greets(keys.security(leaf), before)
    assert greets(keys.security(leaf), keys.security())
    made()
    renew()
    assert len(leaf.chain("roots")) == 2
    for other in (before, keys.security()):
        assert greets(keys.security(leaf), other)
    finish(keys.issuer, time.time(), anyway=True)
    made()
    renew()
    assert greets(keys.security(leaf), keys.security())
    assert not greets(keys.security(leaf), before)
