"""How every Java of the tests is started: for a short life.

Spark starts with a third of the work if its classes lie in an archive that Java maps, which `scripts/archive_spark.py`
makes. Java itself sees whether the archive fits, and does without it if not.
"""

import os
import shutil
import sys
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

VARIABLE = "JDK_JAVA_OPTIONS"


def archive() -> Path:
    """Where the archive for this Java and this Spark lies, or will lie."""
    facts = (os.path.realpath(shutil.which("java") or ""), sys.prefix, version("pyspark"))
    key = blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
    return Path(__file__).parents[2] / ".cache" / f"spark-classes-{key}.jsa"


def java_options() -> str:
    """No test runs long enough for the second, better compiler to pay: it would take processors from other tests."""
    return f'-XX:TieredStopAtLevel=1 -Xlog:disable "-XX:SharedArchiveFile={archive()}"'
