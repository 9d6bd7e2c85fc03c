"""Services: how they register and what identities grant them, by OAuth 2.1 (docs/protocol.md section 7).

Texts of scopes come in and are resolved to schemas; codes and tokens go out.
"""

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
