"""Reading: a caller and a query come in; rows, histories, changes, proofs, summaries and states go out.

Views are resolved by name or `AUTHOR/LOG`. A caller gets only what is visible to them, by the conditions of
`store/views`. Nothing here writes, but for pins. docs/protocol.md sections 2, 4, 6, 8 and 9.
"""

from inkgrove.node.reading.change_feed import (
    ChangeEvent,
    NewestChanges,
    ViewSubscription,
    event_id,
    read_changes,
    read_newest,
    subscribe_to_view,
)
from inkgrove.node.reading.history import (
    HistoryMessage,
    list_outcomes,
    prove_instance,
    read_history,
    show_instance_at,
    written_fields,
)
from inkgrove.node.reading.logs import LogPage, list_logs, show_log
from inkgrove.node.reading.query import (
    MAX_PAGE,
    MAX_TOKEN,
    Related,
    ViewPage,
    ViewQuery,
    list_views,
    parse_instance,
    parse_position,
    query_view,
    relation_schema,
    render_cursor,
    render_position,
    row_document,
    show_instance,
)
from inkgrove.node.reading.status import (
    explain_copy,
    pin_instance,
    read_lag,
    read_pipeline_state,
    read_rot_state,
    read_state,
    unpin_instance,
)
from inkgrove.node.reading.summary import MAX_ROWS, count_fallbacks, summarise

__all__ = [
    "MAX_PAGE",
    "MAX_ROWS",
    "MAX_TOKEN",
    "ChangeEvent",
    "HistoryMessage",
    "LogPage",
    "NewestChanges",
    "Related",
    "ViewPage",
    "ViewQuery",
    "ViewSubscription",
    "count_fallbacks",
    "event_id",
    "explain_copy",
    "list_logs",
    "list_outcomes",
    "list_views",
    "parse_instance",
    "parse_position",
    "pin_instance",
    "prove_instance",
    "query_view",
    "read_changes",
    "read_history",
    "read_lag",
    "read_newest",
    "read_pipeline_state",
    "read_rot_state",
    "read_state",
    "relation_schema",
    "render_cursor",
    "render_position",
    "row_document",
    "show_instance",
    "show_instance_at",
    "show_log",
    "subscribe_to_view",
    "summarise",
    "unpin_instance",
    "written_fields",
]
