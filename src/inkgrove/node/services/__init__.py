"""."""

from inkgrove.node.services.grants import Consent, IssuedTokens
from inkgrove.node.services.scopes import (
    ScopeRequest,
    find_schema_by_fqdn,
    find_schema_meta,
    group_scopes,
    render_scopes,
    resolve_scopes,
)

__all__ = [
    "Consent",
    "IssuedTokens",
    "ScopeRequest",
    "find_schema_by_fqdn",
    "find_schema_meta",
    "group_scopes",
    "render_scopes",
    "resolve_scopes",
]
