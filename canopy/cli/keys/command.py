"""`canopy keys`: the keys of an overlay, and who may take part in it (docs/guide/security.md)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from canopy.cli.completion import context_names
from canopy.cli.connect import json_option, resolve_folder
from canopy.cli.hints import HintingGroup
from canopy.cli.output import TextTable, show, when
from canopy.cli.parameters import parse_period
from overlay.phrases import as_argument


def _folder(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """Return the folder of --connect. A folder that does not exist yet may have any name."""
    from canopy.client.errors import UnknownContextError

    try:
        found = resolve_folder(value)
    except UnknownContextError:
        found = value
    return None if found is None else Path(found)


data_option = click.option(
    "--connect",
    "--data",
    "data",
    envvar="CANOPY_CONNECT",
    metavar="NODE",
    callback=_folder,
    shell_complete=context_names,
    help="The node's data folder, or the name of a context. [env: CANOPY_CONNECT; default: the "
    "current context, else the default data folder]",
)


@click.group(cls=HintingGroup)
def keys() -> None:
    """Make keys for an overlay, invite nodes into it, and revoke them.

    Two commands make a safe overlay: `keys init` at its first node, and there `keys invite` for
    each other one, which starts with `canopy node --join @FILE`.

    \b
    canopy keys init --overlay acme
    canopy keys invite --for 1h > second.token
    canopy node --join @second.token
    """


@keys.command()
@data_option
@click.option("--overlay", default="canopy", help="The overlay's name.")
@json_option
def init(data: Path | None, overlay: str, as_json: bool) -> None:
    """Make a root, an issuer and the first node's key, in this node's data folder.

    \b
    canopy keys init --overlay acme
    canopy node --overlay acme --listen 0.0.0.0:4470 --advertise first.example:4470
    """
    from canopy.wire.keys.authority import found_overlay

    folder = key_folder(data)
    node = found_overlay(folder, overlay)
    root = folder.path / "root.key"
    show(
        {"overlay": overlay, "node": node, "root": str(root)},
        as_json,
        f"the overlay {overlay} has keys; this node is {node}",
        f"move {root} to a safe place, offline: only another issuer needs it",
    )


@keys.command()
@data_option
@click.option("--role", default="voter", help="leaf, member, voter, issuer or admin.")
@click.option("--tenant", default="", help="Whose node it is.")
@click.option(
    "--uses", default=1, type=click.IntRange(1, 10_000), help="The limit of nodes that join by it."
)
@click.option(
    "--for",
    "seconds",
    default="1h",
    callback=parse_period,
    metavar="PERIOD",
    help="How long: 30m, 1h, 7d.",
)
@click.option(
    "--per-hour", default=0, type=click.IntRange(0, 10_000), help="The limit of nodes an hour."
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="Where this node is reached; by default where it runs.",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="HOST:PORT",
    help="Where new nodes meet the overlay besides; needed if this node is a leaf.",
)
@json_option
def invite(
    data: Path | None,
    role: str,
    tenant: str,
    uses: int,
    seconds: float,
    per_hour: int,
    addresses: tuple[str, ...],
    peers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print a token with which a new node gets a certificate from this one.

    Whoever has the token can join, so treat it as a password. This node has to be running when the
    new node joins.

    \b
    canopy keys invite
    canopy keys invite --role leaf --tenant acme --uses 10 --for 7d
    canopy keys invite --role leaf --uses 500 --per-hour 20 --for 30d
    """
    from canopy.wire.keys.authority import invite as new_token
    from canopy.wire.keys.tokens import write_token
    from overlay.rights import ROLES, Role

    if role not in ROLES:
        raise click.UsageError(f"--role: expected one of {', '.join(ROLES)}")
    folder = key_folder(data)
    where = addresses or own_address(folder.path.parent)
    own = folder.certificate_or_none()
    if own is not None and own.principal.role is Role.LEAF and not peers:
        raise click.UsageError(
            "this node is a leaf, which names no others: give a node of the overlay that is none "
            "with --peer HOST:PORT"
        )
    token = new_token(folder, ROLES[role], tenant, uses, seconds, where, per_hour, peers)
    text = write_token(token)
    show({"token": text, "until": time.time() + seconds, "uses": uses}, as_json, text)


@keys.command()
@data_option
@click.option(
    "--into",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The data folder of the issuer's node, new or of a restricted issuer to be replaced.",
)
@click.option(
    "--role", "roles", multiple=True, required=True, help="Role that it may sign; repeatable."
)
@click.option("--tenant", "tenants", multiple=True, help="Nodes of this tenant; repeatable.")
@click.option("--any-tenant", is_flag=True, help="Nodes of any tenant, and of none.")
@click.option("--ids", default=0, type=click.IntRange(0, 1_000_000), help="Ids valid at a time.")
@click.option(
    "--for",
    "seconds",
    default="90d",
    callback=parse_period,
    metavar="PERIOD",
    help="How long: 30d, 90d.",
)
@json_option
def issuer(
    data: Path | None,
    into: Path,
    roles: tuple[str, ...],
    tenants: tuple[str, ...],
    any_tenant: bool,
    ids: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Make another issuer, restricted to certain nodes.

    It needs root.key in the folder keys of --data. Every node refuses certificates of this issuer
    that exceed the issuer's own certificate; without --tenant it may sign only nodes of no tenant.
    Bring DIR to the machine where the issuer's node is to run. If DIR has a restricted issuer
    already, the new one replaces it, and its nodes renew there: do that before the old one expires.

    \b
    canopy keys issuer --role leaf --tenant acme --for 90d --into acme-issuer
    canopy node --data acme-issuer --peer first.example:4470 --listen 0.0.0.0:4480
    canopy keys invite --data acme-issuer --role leaf --tenant acme --peer first.example:4470
    """
    from canopy.wire.keys.authority import make_issuer
    from canopy.wire.keys.certificates import DAY, check_name
    from canopy.wire.keys.key_folder import KeyFolder
    from canopy.wire.keys.restrictions import Restriction
    from overlay.rights import ROLES

    if unknown := [role for role in roles if role not in ROLES]:
        raise click.UsageError(f"--role {unknown[0]}: expected one of {', '.join(ROLES)}")
    if tenants and any_tenant:
        raise click.UsageError("--tenant and --any-tenant exclude each other")
    for name in tenants:
        check_name("tenant", name)
    whose = None if any_tenant else tuple(dict.fromkeys(tenants)) or ("",)
    restriction = Restriction(tuple(dict.fromkeys(roles)), whose, ids)
    target = KeyFolder(into)
    target.check()
    days = seconds / DAY
    folder = key_folder(data)
    try:
        where = own_address(folder.path.parent)
    except click.UsageError:
        where = ()  # then it goes over to another root by hand
    made = make_issuer(folder, target, restriction, days, time.time(), where)
    own = target.certificate()
    assert own is not None
    signs = {"roles": restriction.roles, "tenants": restriction.tenants, "ids": ids}
    about = {"id": made.id, "folder": str(into), "node": own.principal.id}
    show(
        {**about, **signs, "until": ends_of(made)},
        as_json,
        f"issuer {made.id} in {into} may sign {restriction}",
        f"its node is {own.principal.id}; until {when(ends_of(made))}",
    )


@keys.command()
@data_option
@click.option("--tenant", default="*", help="Tenant to limit; by default all nodes together.")
@click.option(
    "--ids", default=0, type=click.IntRange(0), help="Ids valid at a time; 0: any number."
)
@click.option(
    "--per-hour", default=0, type=click.IntRange(0), help="New ids per hour; 0: any number."
)
@json_option
def limit(data: Path | None, tenant: str, ids: int, per_hour: int, as_json: bool) -> None:
    """Limit how many ids this issuer signs, whoever has its tokens. Renewals are not limited.

    \b
    canopy keys limit --per-hour 60
    canopy keys limit --tenant acme --ids 20 --per-hour 5
    canopy keys limit --tenant acme        # remove the limit
    """
    from canopy.wire.keys.certificates import check_name
    from canopy.wire.keys.ledger import ALL, Ledger, Limit

    folder = key_folder(data)
    if not folder.is_issuer:
        raise click.UsageError(f"{folder.path} has no issuer's key")
    if tenant != ALL:
        check_name("tenant", tenant)
    Ledger(folder.path).set_limit(tenant, Limit(ids, per_hour))
    folder.note("limit", tenant=tenant, ids=ids, per_hour=per_hour)
    found = {"tenant": tenant, "ids": ids, "per_hour": per_hour}
    show(found, as_json, limit_text(tenant, ids, per_hour))


@keys.command()
@data_option
@json_option
def ls(data: Path | None, as_json: bool) -> None:
    """Show this node's certificate and issuers, limits, open invitations and revoked ids.

    \b
    canopy keys ls
    """
    from canopy.wire.keys.ledger import ALL, Ledger

    folder = key_folder(data)
    own = folder.certificate_or_none()
    revoked = () if own is None else folder.revocations(own.holder.overlay)[0].ids
    invitations = folder.invitations() if folder.is_issuer else {}
    rows: list[tuple[str, ...]] = []
    found: dict[str, Any] = {
        "node": None,
        "issuers": [],
        "limits": {},
        "signed": 0,
        "invitations": [],
        "revoked": list(revoked),
        "not_renewed": [],
    }
    if own is not None:
        principal, ends = own.principal, when(own.ends)
        role = principal.role.name.lower()
        found["node"] = {
            "id": principal.id,
            "overlay": own.holder.overlay,
            "role": role,
            "tenant": principal.tenant,
            "until": own.ends,
        }
        rows.append(("node", principal.id, role, principal.tenant, f"until {ends}"))
    found["issuers"] = list(issuers_of(folder))
    for one in found["issuers"]:
        roles, tenants = one["roles"], one["tenants"]
        whose = "any" if tenants is None else ", ".join(name or "none" for name in tenants)
        name = "issuer" if one["present"] else "former issuer"
        most = f", {one['ids']} ids" if one["ids"] else ""
        until = f"until {when(one['until'])}{most}"
        rows.append((name, one["id"], "any" if roles is None else ", ".join(roles), whose, until))
    if folder.is_issuer:
        ledger = Ledger(folder.path)
        found["signed"] = len(ledger.live(time.time(), revoked))
        rows.append(("signed", f"{found['signed']} ids", "", "", ""))
        for name, most_of in ledger.limits().items():
            found["limits"][name] = {"ids": most_of.ids, "per_hour": most_of.hour}
            text = limit_text(name, most_of.ids, most_of.hour)
            rows.append(("limit", "", "", "" if name == ALL else name, text))
    for name, each in invitations.items():
        left = each.uses - len(each.used_by)
        about = {"name": name, "role": each.role, "tenant": each.tenant, "left": left}
        found["invitations"].append({**about, "until": each.until, "used_by": list(each.used_by)})
        until = f"{left} left, {when(each.until)}"
        rows.append(("invitation", name, each.role, each.tenant, until))
        rows += [("  used by", node, "", "", "") for node in each.used_by]
    rows += [("revoked", node, "", "", "") for node in revoked]
    late = late_nodes(folder)
    found["not_renewed"] = [one.node for one in late]
    rows += [
        ("not renewed", one.node, one.role, one.tenant, "since the issuer was replaced")
        for one in late
    ]
    shown = TextTable("", "=id", "role", "tenant", "").of(rows)
    show(found, as_json, shown or f"no keys in {folder.path}")


@keys.command()
@data_option
@click.argument("nodes", nargs=-1, required=True, metavar="ID…")
@json_option
def revoke(data: Path | None, nodes: tuple[str, ...], as_json: bool) -> None:
    """Revoke the ids NODE, so that no node accepts them. The list is signed here, and spreads while
    the overlay runs.

    Their links are closed within seconds, and their certificates are not renewed. Revoking the id
    of an issuer, from `keys ls` there, revokes all that it has signed.

    \b
    canopy keys revoke 0f3c9a…
    """
    from canopy.wire.keys.authority import revoke as sign

    for node in nodes:
        if not re.fullmatch(r"[0-9a-f]{32}", node):
            raise click.UsageError(f"{node!r} is no id: 32 hex digits, as in `canopy peers`")
    folder = key_folder(data)
    own = folder.certificate_or_none()
    if own is not None and own.principal.id in nodes:
        raise click.UsageError("this is the node's own id: revoke it at another issuer")
    changed = sign(folder, nodes)
    said = f"list {changed.version}: {len(changed.ids)} revoked"
    show({"version": changed.version, "revoked": list(changed.ids)}, as_json, said)


@keys.command()
@data_option
@click.option("--new-id", is_flag=True, help="Become another node: the state here is given up.")
@json_option
def renew(data: Path | None, new_id: bool, as_json: bool) -> None:
    """Get the next certificate now; a running node does that by itself.

    \b
    canopy keys renew
    canopy keys renew --new-id             # its state is damaged
    """
    from canopy.wire.keys.authority import sign_self
    from canopy.wire.keys.join import renew_issuer_now, renew_now

    folder = key_folder(data)
    own = folder.certificate()
    if own is None:
        raise click.UsageError(f"{folder.path} has no certificate")
    generation = own.holder.generation + new_id
    if folder.is_issuer:
        if folder.issuer_place() is not None:  # a restricted one
            renew_issuer_now(folder)
        sign_self(folder, own.holder.overlay, generation, time.time())
    else:
        renew_now(folder, generation)
    if new_id:
        for name in ("node.json", "state"):
            path = folder.path.parent / name
            if path.exists():
                path.replace(path.with_name(f"{name}.former"))
    found = folder.certificate()
    assert found is not None
    said = f"node {found.principal.id}, until {when(found.ends)}"
    show({"node": found.principal.id, "until": found.ends}, as_json, said)


@keys.command()
@data_option
@click.option("--finish", is_flag=True, help="Drop the former root, when all have the new one.")
@click.option("--anyway", is_flag=True, help="With --finish: leave behind who has not renewed.")
@json_option
def rotate(data: Path | None, finish: bool, anyway: bool, as_json: bool) -> None:
    """Replace root and issuer, while the overlay runs.

    The first step needs the root's key in the folder. From then on nodes accept both roots; policy,
    list of revocations and restricted issuers are signed again, and running nodes renew within a
    minute. Then `--finish` makes every node drop the former root and all that its issuers have
    signed. It refuses, and says why, while a node still needs the former root.

    \b
    canopy keys rotate
    canopy keys rotate --finish            # when all have renewed; it names those that have not
    canopy keys rotate --finish --anyway   # now, as after the theft of a key
    """
    from canopy.wire.keys.rotation import finish as drop
    from canopy.wire.keys.rotation import rotate as begin

    if anyway and not finish:
        raise click.UsageError("--anyway is for --finish")
    folder = key_folder(data)
    if finish:
        left = drop(folder, time.time(), anyway)
        said = ["the former root is believed no more: nodes drop it within seconds"]
        said += [f"left behind, until they renew: {left}"] if any(left) else []
        show({"step": "finished", "left": str(left) if any(left) else ""}, as_json, *said)
        return
    begin(folder, time.time())
    root = folder.path / "root.key"
    show(
        {"step": "begun", "root": str(root)},
        as_json,
        "there is a new root; nodes that run renew within a minute. Then:",
        "  canopy keys rotate --finish",
        f"move {root} to a safe place, offline",
    )


def late_nodes(folder: Any) -> tuple[Any, ...]:
    """Return the nodes whose certificates were signed by a former issuer."""
    from canopy.wire.keys.rotation import not_renewed

    own = folder.certificate_or_none()
    if own is None or not folder.is_issuer:
        return ()
    return not_renewed(folder, own.holder.overlay, time.time())


def ends_of(made: Any) -> float:
    """Return when an issuer's certificate ends, in seconds since 1970."""
    ends: float = made.certificate.not_valid_after_utc.timestamp()
    return ends


def issuers_of(folder: Any) -> Iterator[dict[str, Any]]:
    """Yield each issuer of a key folder as an object of `--json`: its id, the roles, tenants and
    number of ids to which it is restricted (None: not), its end, and whether it is the present
    one."""
    from canopy.wire.keys.certificates import is_authority, path_length
    from canopy.wire.keys.chains import authority_id
    from canopy.wire.keys.restrictions import restriction_of

    present = folder.chain("issuer")[:1]
    for one in folder.issuers():
        if is_authority(one) and path_length(one) == 0:  # no root that vouches for another
            limits = restriction_of(one)
            yield {
                "id": authority_id(one),
                "roles": list(limits.roles) if limits else None,
                "tenants": limits and limits.tenants,
                "ids": limits and limits.ids,
                "until": one.not_valid_after_utc.timestamp(),
                "present": one in present,
            }


def limit_text(tenant: str, ids: int, per_hour: int) -> str:
    """Return a limit in words."""
    whose = "" if tenant == "*" else f" of {tenant}"
    parts = [f"{ids} ids{whose} at most"] if ids else []
    parts += [f"{per_hour} new ids{whose} an hour"] if per_hour else []
    return ", ".join(parts) or f"any number of ids{whose}"


def key_folder(data: Path | None) -> Any:
    """Return the key folder of this data folder, or of the default one."""
    from canopy.wire.folder import default_folder
    from canopy.wire.keys.key_folder import KeyFolder

    folder = KeyFolder(data or default_folder())
    folder.check()
    return folder


def own_address(folder: Path) -> tuple[str, ...]:
    """Return the address of the node that runs in this data folder. UsageError if none runs."""
    try:
        return ((folder / "address").read_text().strip(),)
    except OSError:
        raise click.UsageError(
            "no node runs here: start it first, or say where it will be with --address HOST:PORT"
        ) from None


# --- `canopy keys seal`: keys by which programs seal payloads (docs/guide/security.md) ---

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@keys.group(cls=HintingGroup)
def seal() -> None:
    """Make and rotate the keys with which a tenant's programs seal payloads.

    Programs that have the file seal the payloads that they publish and open those that they
    receive. Nodes have no key, and pass payloads on sealed. Attributes, sizes, times and ids are
    not sealed.

    \b
    canopy keys seal new acme.seal
    canopy pub --seal acme.seal --data '{"id": "1", "card": {"number": "4111…"}}'
    canopy sub --seal acme.seal "id IS NOT NULL" --json
    """


@seal.command("new")
@file_argument
@json_option
def new_seal(file: Path, as_json: bool) -> None:
    """Make FILE with one key; only you can read it.

    Copy it to the programs' machines as you would a password, with mode 0600.

    \b
    canopy keys seal new acme.seal
    """
    from canopy.wire.keys.seals import found_seals

    key = found_seals(file).seals
    show({"file": str(file), "key": key}, as_json, f"{file}: key {key}")


@seal.command("rotate")
@file_argument
@click.option("--finish", is_flag=True, help="Seal with the newest key: all programs have it.")
@json_option
def rotate_seal(file: Path, finish: bool, as_json: bool) -> None:
    """Replace the key that seals. Former keys still open what they have sealed.

    The first step adds a key that only opens. Copy the file to all programs, which read it again
    within a second. Then `--finish` makes the new key seal; copy the file again to those that
    publish.

    \b
    canopy keys seal rotate acme.seal
    canopy keys seal rotate acme.seal --finish
    """
    from canopy.wire.keys.seals import add_key, seal_with_newest

    if finish:
        seals = seal_with_newest(file).seals
        found = {"file": str(file), "key": seals, "use": "seals"}
        show(found, as_json, f"{file}: the key {seals} seals")
        return
    key = add_key(file).keys[-1]
    show(
        {"file": str(file), "key": key.id, "use": "opens"},
        as_json,
        f"{file}: key {key.id} opens; copy the file to all programs, and then:",
        f"  canopy keys seal rotate {as_argument(file)} --finish",
    )


@seal.command("forget")
@file_argument
@click.argument("key", metavar="KEY")
@json_option
def forget_seal(file: Path, key: str, as_json: bool) -> None:
    """Remove a key from FILE. Payloads sealed with it can then no longer be opened.

    \b
    canopy keys seal forget acme.seal 0f3c9a17b2d4e680
    """
    from canopy.wire.keys.seals import forget_key

    forget_key(file, key)
    show({"file": str(file), "removed": key}, as_json, f"{file}: the key {key} is gone")


@seal.command("ls")
@file_argument
@json_option
def list_seals(file: Path, as_json: bool) -> None:
    """List the ids of the keys in FILE, and which one seals.

    \b
    canopy keys seal ls acme.seal
    """
    from canopy.wire.keys.seals import read_seals

    found = read_seals(file)
    rows = [
        (key.id, when(key.made), "seals" if key.id == found.seals else "opens")
        for key in found.keys
    ]
    listed = [{"key": id_, "made": made, "use": use} for id_, made, use in rows]
    show(listed, as_json, TextTable("=key", "made", "").of(rows))
