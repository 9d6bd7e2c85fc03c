"""Pages of other hosts: Starlette's middleware, which requests of programs need not go through."""

from functools import partial

from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Receive, Scope, Send

from inkgrove.api.bodies import first_headers


class Cors(CORSMiddleware):
    """To a request without an Origin there is nothing to say but that one would have mattered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or b"origin" in first_headers(scope):
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, partial(_say_it_matters, send))


async def _say_it_matters(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        headers = message.get("headers", ())
        named = [value for name, value in headers if name == b"vary"]
        others = [item for item in headers if item[0] != b"vary"] if named else headers
        message["headers"] = [*others, (b"vary", b", ".join([*named, b"Origin"]))]
    await send(message)
