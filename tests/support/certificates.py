"""Whom every process of the tests trusts: one authority instead of all of the system.

Nodes of tests speak to nobody but each other, over loopback. To read a hundred and more certificates, as each node and
each client does when it is made, takes a third of the work that starting a node is.
"""

import os
from pathlib import Path

import certifi

_VARIABLE = "SSL_CERT_FILE"
_BEFORE = "INKGROVE_TEST_SSL_CERT_FILE_BEFORE"
_END = "-----END CERTIFICATE-----\n"
_FILE = Path(__file__).parents[2] / ".cache" / "one-authority.pem"


def trust_one_authority() -> None:
    """Let this process and all that it starts read one certificate where they would read those of the system."""
    if os.environ.get(_VARIABLE) == str(_FILE):
        return  # whoever has started this process has done so
    if not _FILE.exists():
        _FILE.parent.mkdir(exist_ok=True)
        made = _FILE.with_suffix(f".{os.getpid()}")
        made.write_text(certifi.contents().partition(_END)[0] + _END)
        made.replace(_FILE)
    os.environ[_BEFORE] = os.environ.get(_VARIABLE, "")
    os.environ[_VARIABLE] = str(_FILE)


def environment_for_downloads() -> dict[str, str]:
    """The environment of a program that speaks to the internet: it trusts whom the system trusts."""
    environment = dict(os.environ)
    before = environment.pop(_BEFORE, None)
    if before is not None:
        environment.pop(_VARIABLE)
        if before:
            environment[_VARIABLE] = before
    return environment
