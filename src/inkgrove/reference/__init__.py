"""The oracle of the tests: held entries folded into views in plain Python, sentence by sentence as the protocol reads.

Entries and the registered schemas come in, views with rows and outcomes go out, slowly. It shares nothing with
`inkgrove.schema`, so that a mistake is not made in both.
"""

from inkgrove.reference.results import ReferenceOutcome, ReferenceRow, ReferenceView
from inkgrove.reference.values import UNFIT, Unfit, convert, fit, is_large_pattern, is_pattern
from inkgrove.reference.views import fold_views

__all__ = [
    "UNFIT",
    "ReferenceOutcome",
    "ReferenceRow",
    "ReferenceView",
    "Unfit",
    "convert",
    "fit",
    "fold_views",
    "is_large_pattern",
    "is_pattern",
]
