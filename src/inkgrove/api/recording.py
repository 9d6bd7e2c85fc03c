"""Middleware: what a service did is recorded when its request is answered; a refused one leaves no record."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inkgrove.node.access_log import AccessLog

_REFUSED = 400


class Recording:
    """Confirms what was noted during a request as soon as its answer begins well."""

    def __init__(self, app: ASGIApp, access_log: AccessLog) -> None:
        self._app, self._access_log = app, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._access_log.request() as uses:

            async def confirm(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] < _REFUSED:
                    uses.confirm()
                await send(message)

            await self._app(scope, receive, confirm)
