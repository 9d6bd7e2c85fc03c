"""The oracle: held entries folded into views in plain Python, sentence by sentence as docs/protocol.md reads."""

from inkgrove.reference.fold import fold
from inkgrove.reference.view import ReferenceOutcome, ReferenceRow, ReferenceView

__all__ = ["ReferenceOutcome", "ReferenceRow", "ReferenceView", "fold"]
