"""Views: what happened in a store is planned as dirty groups, folded by tasks, staged and merged into tables.

`Materialiser` does all of it; the data sources `inkgrove` and `inkgrove-relations` are what Spark reads meanwhile.
"""

from inkgrove.pipeline.views.cascade import Relations, cascade, effective, falling
from inkgrove.pipeline.views.export import export_view
from inkgrove.pipeline.views.fold_task import Snapshot, fold_task, take_snapshot
from inkgrove.pipeline.views.materialiser import Materialiser, Report
from inkgrove.pipeline.views.plan import InkgroveSource
from inkgrove.pipeline.views.relation_source import RelationSource

__all__ = [
    "InkgroveSource",
    "Materialiser",
    "RelationSource",
    "Relations",
    "Report",
    "Snapshot",
    "cascade",
    "effective",
    "export_view",
    "falling",
    "fold_task",
    "take_snapshot",
]
