"""`canopy policy`: what tenants may publish and subscribe to (docs/guide/security.md)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import json_option
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.command import data_option, key_folder
from canopy.cli.output import show
from overlay.phrases import as_argument, counted

if TYPE_CHECKING:
    from canopy.wire.keys.key_folder import KeyFolder
    from overlay.tenants.policy import Policy

SUFFIX = ".signed"

file_argument = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))


@click.group(cls=HintingGroup)
def policy() -> None:
    """Define what each tenant may publish and subscribe to, by content.

    A policy is a YAML file. An admin signs it, and the nodes of the overlay pass it on; each new
    version has a higher number. A tenant's subscription is intersected with its rights, so a broad
    one reveals nothing more. A tenant that the policy does not name may neither publish nor
    subscribe.

    \b
    canopy policy check policy.yaml --tenant acme --selector "mag > 3"
    canopy policy push policy.yaml
    canopy policy show
    """


@policy.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
@data_option
@click.option("--tenant", default="", help="Show what this tenant may.")
@click.option("--selector", default="", help="Show this selector as narrowed for the tenant.")
@json_option
def check(file: Path | None, data: Path | None, tenant: str, selector: str, as_json: bool) -> None:
    """Check a policy, and show how it narrows a tenant's selector.

    Without FILE it checks the policy of the node in the data folder. Nothing is changed.

    \b
    canopy policy check policy.yaml
    canopy policy check policy.yaml --tenant acme --selector "mag > 3 OR type IS NULL"
    """
    from matching import SelectorError, compile_selector
    from overlay.tenants.policy import Confinement

    found = parsed(file) if file is not None else current(key_folder(data))
    if selector and not tenant:
        raise click.UsageError("--selector: say for which --tenant")
    known = Confinement(found)
    if not tenant:
        named = counted(len(found.tenants), "tenant")
        told = {"version": found.version, "tenants": list(found.tenants)}
        show(told, as_json, f"policy {found.version}: {named}, and all others nothing")
        return
    may = known.of(tenant)
    try:
        rest = known.remains(tenant, selector)
    except SelectorError as error:
        raise click.UsageError(f"--selector: {error}\n{error.caret()}") from None
    count = 0 if rest.denial else len(compile_selector(rest.selector).conjunctions)
    show(
        {
            "version": found.version,
            "tenant": tenant,
            "publish": may.publish,
            "subscribe": known.sees(tenant),
            "streams": may.streams,
            "remains": "" if rest.denial else rest.selector,
            "conjunctions": count,
            "denial": rest.denial,
        },
        as_json,
        f"policy {found.version}, tenant {tenant}",
        f"  publish    {may.publish or 'nothing'}",
        f"  subscribe  {known.sees(tenant) or 'nothing'}",
        f"  appends to {', '.join(may.streams) or 'no stream'}",
        f"  remains    {rest.denial or f'{rest.selector}  ({count} conjunctions)'}",
    )


@policy.command()
@file_argument
@data_option
@click.option("--out", type=click.Path(path_type=Path), help="By default FILE.signed.")
@json_option
def sign(file: Path, data: Path | None, out: Path | None, as_json: bool) -> None:
    """Sign a policy with the key of the node in the data folder, whose role has to be admin.

    \b
    canopy policy sign policy.yaml
    """
    folder = key_folder(data)
    signed = signed_by(folder, parsed(file))
    target = out or file.with_name(file.name + SUFFIX)
    target.write_bytes(signed)
    said = f"signed: {target}; canopy policy push {as_argument(target)}"
    show({"file": str(target)}, as_json, said)


@policy.command()
@file_argument
@data_option
@json_option
def push(file: Path, data: Path | None, as_json: bool) -> None:
    """Give the overlay a policy, through the node in the data folder.

    FILE is a signed policy, or YAML that is signed here. The running node passes it on within a
    second. A version that is not newer than the present one is refused.

    \b
    canopy policy push policy.yaml
    """
    from canopy.wire.keys.chains import claimed
    from canopy.wire.keys.policies import PolicyBody, read_policy
    from overlay.tenants.policy import PolicyError

    folder = key_folder(data)
    signed = file.read_bytes()
    own = folder.certificate()
    if own is None:
        raise click.UsageError(f"{folder.path} has no certificate")
    try:
        overlay, revoked = own.holder.overlay, folder.revocations(own.holder.overlay)[0].ids
        if signed[:1] != b"\x93":  # an array of three, in MessagePack
            signed = signed_by(folder, parsed(file))
        found = read_policy(signed, overlay, folder.chain("roots"), revoked)
        known = claimed(folder.document("policy"), PolicyBody)  # also if it is believed no longer
    except PolicyError as error:
        raise click.UsageError(f"{file}: {error}") from None
    if known is not None and found.version <= known.policy.version:
        raise click.UsageError(
            f"{file}: version {found.version} is not newer than {known.policy.version}, which is "
            f"there: write version: {known.policy.version + 1}"
        )
    folder.write_document("policy", signed)
    folder.note("policy pushed", version=found.version)
    said = f"policy {found.version}: {counted(len(found.tenants), 'tenant')}"
    show({"version": found.version, "tenants": list(found.tenants)}, as_json, said)


@policy.command("show")
@data_option
@json_option
def show_policy(data: Path | None, as_json: bool) -> None:
    """Print the policy that the node in the data folder has, as YAML.

    \b
    canopy policy show > policy.yaml
    """
    from canopy.wire.keys.policies import write_policy

    found = current(key_folder(data))
    show(found, as_json, write_policy(found).rstrip("\n"))


def parsed(file: Path) -> Policy:
    """Return the policy in a YAML file. Raises UsageError."""
    from canopy.wire.keys.policies import parse_policy
    from overlay.tenants.policy import PolicyError

    try:
        return parse_policy(file.read_text("utf-8"))
    except (PolicyError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file}: {error}") from None


def current(folder: KeyFolder) -> Policy:
    """Return the policy in a key folder. Raises UsageError if there is none."""
    own = folder.certificate_or_none()
    found = None if own is None else folder.policy(own.holder.overlay)[0]
    if found is None:
        raise click.UsageError(f"{folder.path} has no policy: canopy policy push policy.yaml")
    return found


def signed_by(folder: KeyFolder, found: Policy) -> bytes:
    """Return the policy, signed with the key of the node of this folder. Raises UsageError."""
    from canopy.wire.keys.policies import sign_policy
    from overlay.rights import Role
    from overlay.tenants.policy import PolicyError

    own = folder.certificate()
    if own is None or own.principal.role < Role.ADMIN:
        raise click.UsageError(f"the node in {folder.path.parent} is no admin")
    try:
        return sign_policy(found, own.holder.overlay, folder.key(), folder.chain(), time.time())
    except PolicyError as error:
        raise click.UsageError(str(error)) from None
