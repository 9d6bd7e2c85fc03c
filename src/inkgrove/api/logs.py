"""Structured logs: one line per event, for people or as JSON, and never a secret."""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from inkgrove.node.sessions import ACCESS, CODE, REFRESH, SESSION
from inkgrove.node.settings import NodeSettings

_SECRETS: Final = frozenset(
    {"authorization", "password", "token", "access_token", "refresh_token", "secret", "client_secret", "cookie"}
    | {"code_verifier"}
)
_ERROR_CODE: Final = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9-]+)+")
_OWN_TOKEN: Final = re.compile(rf"({'|'.join((SESSION, ACCESS, REFRESH, CODE))})\w+", re.ASCII)
_HIDDEN: Final = "***"


def configure_logs(settings: NodeSettings) -> None:
    """Send everything that this process logs to standard error, also what libraries log."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    is_json = settings.log_format == "json"
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.log_level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    ending: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if is_json
        else [
            show_unprintable,
            # Plain tracebacks: the fancy ones print local variables, and those hold secrets.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=12
            ),
        ]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending, hide_tokens],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    # Requests are logged by us, with their id; httpx would log whole addresses.
    for name in ("uvicorn.access", "httpx", "httpcore", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def show_unprintable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Spell out what would move the cursor, begin a line or turn the text around: a path can hold any of it."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in value)
    return event


def hide_secrets(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask what is named like a secret, wherever it comes from; a `code` unless it is that of an error."""
    for name, value in event.items():
        lower = name.lower()
        if lower in _SECRETS or (lower == "code" and _ERROR_CODE.fullmatch(str(value)) is None):
            event[name] = _HIDDEN
    return event


def hide_tokens(_logger: object, _method: str, line: Any) -> str:
    """Mask tokens and codes of this node wherever they stand in a finished line, such as in a path or a traceback."""
    assert isinstance(line, str)
    return _OWN_TOKEN.sub(rf"\1{_HIDDEN}", line) if "ink_" in line else line
