"""What the log of a node shows and what it masks, by the lines that a process of its own writes."""

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
import structlog
from inkgrove.api.http import configure_logs
from inkgrove.core.errors import StoreUnavailable
from inkgrove.node.settings import NodeSettings

configure_logs(NodeSettings(log_format=sys.argv[1]))
log = structlog.get_logger("tests")
log.warning("a peer was not synced", code="federation.peer-timeout", reason="it hangs")
log.warning("answered", code="http.503")
log.warning("exchange", code="ink_c_" + "ab" * 32)
log.warning("elsewhere", code="d3adbeefd3adbeef")
log.warning("fields", password="hunter22", Authorization="Basic aaaa", code_verifier="verifier1")
log.warning("request", path="/sessions/ink_s_" + "cd" * 32, reason="the token ink_a_" + "ef" * 32 + " has ended")
try:
    raise ValueError("the refresh token is ink_r_" + "12" * 32)
except ValueError:
    log.exception("internal error")
"""
_SECRETS = ("ab" * 8, "cd" * 8, "ef" * 8, "12" * 8, "d3adbeef", "hunter22", "aaaa", "verifier1")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_logs_show_codes_of_errors_and_mask_codes_and_tokens_of_oauth(log_format: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, log_format]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    assert "federation.peer-timeout" in lines
    assert "http.503" in lines
    assert [secret for secret in _SECRETS if secret in lines] == []
    assert "/sessions/ink_s_***" in lines
    assert "the refresh token is ink_r_***" in lines, "also in a traceback"
