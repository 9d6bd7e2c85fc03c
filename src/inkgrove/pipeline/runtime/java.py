"""The Java that Spark needs: found, run and asked for its version."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from inkgrove.core.errors import PipelineError

OLDEST_JAVA: Final = 17
_ADVICE: Final = f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install default-jre-headless) or set JAVA_HOME"


def find_java() -> tuple[str, int]:
    """The program and its version; raises PipelineError, with what to install, if there is none or an old one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise PipelineError("pipeline.no-java", f"Spark needs Java and none was found: {_ADVICE}", advice=_ADVICE)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as err:
        raise PipelineError(
            "pipeline.no-java",
            f"Spark needs Java and {java} cannot be run ({err.strerror or err}): {_ADVICE}",
            advice=_ADVICE,
        ) from err
    # Other lines may come first: Java tells of options that it takes from the environment.
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    version = int(found[1]) if found else 0
    if version < OLDEST_JAVA:
        raise PipelineError(
            "pipeline.no-java", f"Spark needs Java {OLDEST_JAVA} or newer, this is {version}: {_ADVICE}", advice=_ADVICE
        )
    return java, version
