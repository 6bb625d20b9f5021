"""The parent of Spark's Python workers (`spark.python.daemon.module`).

Workers are forked from here, so what is imported, compiled and warm in this process is so in all of them. Spark's own
daemon spends 0.2 to 0.3 CPU seconds a task on two habits that a worker without zip archives and without garbage does
not need: dropping the caches of every zip importer, and a full garbage collection over all that was imported.
"""

import gc
import zipimport

from pyspark import daemon

from lakestream.frontier.moving.tiles.writing import warm_up


def _keep_caches(_: zipimport.zipimporter) -> None:
    """Our workers' archives do not change while they run."""


def prepare() -> None:
    """Everything that is cheaper once than in every worker. Starts no thread: threads do not survive a fork."""
    zipimport.zipimporter.invalidate_caches = _keep_caches  # type: ignore[method-assign,assignment]
    warm_up()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    prepare()
    daemon.manager()  # type: ignore[no-untyped-call]
