"""The process that Spark forks its Python workers from (`spark.python.daemon.module`): modules are loaded once, here.

Measured over 24 small stores: each worker took 0.3 s of a processor instead of 3.4. The one thread that loading starts
is that of pyarrow's allocator (jemalloc), which provides for forks; Spark itself keeps numpy from starting others.
"""

import gc
import sys
from pathlib import Path


def without_archives(path: list[str]) -> list[str]:
    """A path of modules without Spark's archives, if the same modules lie beside them, as pip brings them.

    Those in an archive are compiled anew by each process.
    """
    return [name for name in path if not (name.endswith((".zip", ".jar")) and _lies_in_package(Path(name), path))]


def _lies_in_package(archive: Path, path: list[str]) -> bool:
    return any(parent.name == "pyspark" and str(parent.parent) in path for parent in archive.resolve().parents)


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()

    import pandas  # type: ignore[import-untyped]  # noqa: F401 - Spark's own worker needs it
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import inkgrove.pipeline.archive
    import inkgrove.pipeline.rot.run
    import inkgrove.pipeline.views  # noqa: F401

    # Spark collects garbage after each task. Modules are none, and to look at all that they hold takes long.
    gc.freeze()
    manager()
