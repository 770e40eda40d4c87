"""The rights of clients: tokens, and the origins of browsers.

A browser sends requests on behalf of any page that it shows. So a request that names an `Origin` is
refused unless that is the gateway itself or was allowed, and a request whose `Host` is not the
gateway's own name on loopback is refused (DNS rebinding), with or without tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from canopy.wire.addresses import is_loopback, split_address
from canopy.wire.token_file import Scope, TokenFile, TokensError, named_in
from matching import Predicate, compile_selector


class RequestRefused(Exception):  # noqa: N818 - what happened to a request
    """A request is refused. `status`: of HTTP; the message is for the client; `about`: further
    facts for programs (`code`, the node's code; `published` and `in_doubt`)."""

    def __init__(self, status: int, reason: str, **about: str | int) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.about = about

    def shown(self) -> dict[str, Any]:
        """Return the answer to the client."""
        return {"error": self.reason, **self.about}


class Permission(msgspec.Struct, frozen=True):
    """The rights of a client. `name`: the name of the token, "" without tokens. `secret` is kept to
    check whether the token is still valid, and is never written anywhere."""

    name: str
    scopes: tuple[Scope, ...]
    publish: str = ""
    subscribe: str = ""
    secret: str = ""
    streams: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Permission({self.name!r}, {self.scopes!r})"

    def check(self, scope: Scope) -> None:
        """Raise RequestRefused without `scope`."""
        if scope not in self.scopes:
            raise RequestRefused(403, f"the token {self.name} does not allow to {scope}")

    def check_observer(self) -> None:
        """Raise RequestRefused unless the client may ask the node for its state, all of it."""
        self.check("observe")
        if self.publish or self.subscribe:
            raise RequestRefused(
                403, f"the token {self.name} is confined to events of its selectors"
            )

    def check_stream(self, stream: str) -> None:
        """Raise RequestRefused unless the client may append to this stream."""
        if not named_in(stream, self.streams):
            raise RequestRefused(
                403,
                f"the token {self.name} does not name stream {stream} as one that it appends to: "
                f"canopy gateway token add … --stream {stream}",
            )

    def confined(self, selector: str) -> str:
        """Return `selector` AND the token's selector. Both were parsed separately before, so
        `selector` cannot close the parentheses."""
        if not self.subscribe:
            return selector
        return f"({selector}) AND ({self.subscribe})"

    def may_publish(self) -> Predicate | None:
        """Return the predicate that a published event has to match; None: any event may be
        published."""
        return compile_selector(self.publish) if self.publish else None


ANYBODY = Permission("", ("publish", "subscribe", "observe"), streams=("*",))
"""The rights of every client if there are no tokens: the gateway then serves only this machine."""


class GatewayRules:
    """The rules for tokens and browsers. `hosts`: the valid values of `Host`; empty: any."""

    def __init__(
        self, tokens: TokenFile | None, origins: Collection[str] = (), hosts: Collection[str] = ()
    ) -> None:
        self._tokens = tokens
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._hosts = frozenset(host.lower() for host in hosts)

    def grant(self, secret: str) -> Permission:
        """Return the rights of the token with this secret; "": none was sent. Raises
        RequestRefused."""
        if self._tokens is None:
            return ANYBODY
        if not secret:
            raise RequestRefused(401, "a token is needed: canopy gateway token add NAME makes one")
        try:
            token = self._tokens.find(secret)
        except (TokensError, OSError):
            raise RequestRefused(503, "the gateway cannot read its file of tokens") from None
        if token is None:
            raise RequestRefused(401, "the token is unknown or has expired")
        return Permission(
            token.name, token.scopes, token.publish, token.subscribe, secret, token.streams
        )

    def is_still_good(self, grant: Permission) -> bool:
        """Return whether the token of `grant` still gives the same rights."""
        try:
            return self.grant(grant.secret) == grant
        except RequestRefused:
            return False

    def check_browser(self, host: str, origin: str) -> None:
        """Check the headers `Host` and `Origin` of a request. Raises RequestRefused."""
        if self._hosts and not self._is_ours(host):
            raise RequestRefused(
                403, f"{host or 'no host'} is not a name of this gateway; allow it with --host"
            )
        if not origin or origin.lower() in self._origins or "*" in self._origins:
            return
        scheme, _, name = origin.partition("://")
        if scheme not in ("http", "https") or name.lower() != host.lower():
            raise RequestRefused(
                403, f"pages of {origin} may not use this gateway; allow with --origin"
            )

    def allowed_origin(self, origin: str) -> bool:
        """Return whether a page of another origin may read the answers (CORS)."""
        return bool(origin) and ("*" in self._origins or origin.lower() in self._origins)

    def _is_ours(self, host: str) -> bool:
        name = host.lower()
        if name.rpartition(":")[0] and not name.endswith("]"):
            try:
                name = split_address(name)[0]
            except ValueError:
                return False
        name = name.strip("[]")
        return name in self._hosts or is_loopback(name)
