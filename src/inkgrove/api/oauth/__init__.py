"""Services that act for an identity: OAuth 2 authorisation, tokens, and the pages on which an identity consents.

`server` is Authlib over the use cases of the node, `consent` and `consent_page` are what an identity sees in a browser,
`services` has the routes that services call and those by which an identity lists and ends them.
"""

from inkgrove.api.oauth import consent, services

ROUTERS = (services.router, consent.router)

__all__ = ["ROUTERS"]
