"""How every Java of the tests is started: for a short life.

Spark starts with a third of the work if its classes lie in an archive that Java maps, which `scripts/archive_spark.py`
makes. Java itself sees whether the archive fits, and does without it if not.
"""

import os
import shutil
import sys
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "JDK_JAVA_OPTIONS"
_CACHE = Path(__file__).parents[2] / ".cache"


def archive() -> Path:
    """Where the archive for this Java and this Spark lies, or will lie."""
    facts = (os.path.realpath(shutil.which("java") or ""), sys.prefix, version("pyspark"), str(_home()))
    key = blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
    return _CACHE / f"spark-classes-{key}.jsa"


def java_options() -> str:
    """No test runs long enough for the second, better compiler to pay: it would take processors from other tests."""
    return f'-XX:TieredStopAtLevel=1 -Xlog:disable "-XX:SharedArchiveFile={archive()}"'


def _home() -> Path:
    key = blake2b(sys.prefix.encode(), digest_size=8).hexdigest()
    return _CACHE / f"spark-{key}"


def spark_home() -> Path:
    """Spark as it is installed, but for the zip file with its Python modules.

    Each Python process that Spark starts would compile those anew, for half a second. Without it they take the very
    same modules from where pip has put them.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "jars"):
        with suppress(FileExistsError):  # it is there, or another process makes it just now
            (home / name).symlink_to(Path(spec.origin).parent / name)
    return home


def prepare_java() -> None:
    """Let every process that is started from here on start Spark this way."""
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
    os.environ.setdefault(VARIABLE, java_options())
