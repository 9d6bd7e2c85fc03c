"""Answers in JSON, for routes whose answers are large or asked for often."""

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi.responses import JSONResponse
from starlette.responses import Response


def json_answer(document: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document that holds nothing but what JSON has."""
    try:
        return Response(orjson.dumps(document), status, headers, "application/json")
    except TypeError:  # integers of more than 64 bits, which the writer does not know
        return JSONResponse(document, status, headers)
