"""What messages mean (docs/protocol.md sections 4 to 6): field types, schemas, migrations, and the fold into rows.

Messages of schema logs come in and a `Schema` goes out; messages of a log come in and rows with outcomes go out. All of
it is computed without I/O. `inkgrove.reference` implements the same sections a second time and shares nothing with it.
"""

from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.fold import FoldedRow, InstanceChange, InstanceFold, Ruling, fold_further
from inkgrove.schema.lint import LintReport, describe_version, differences, lint_migration, relations_of
from inkgrove.schema.log_fold import LogContext, LogFold, LogMessage, fold_log
from inkgrove.schema.migrate import Migration, compile_migration
from inkgrove.schema.other_logs import End, NamedEntry, NoOtherLogs, OtherLogs
from inkgrove.schema.schema import (
    Field,
    FieldId,
    FieldUpdate,
    Schema,
    Version,
    append_version,
    carry_value,
    check_value,
    fold_schema,
    patterns_of,
)
from inkgrove.schema.types import (
    CHECKS,
    CONVERSIONS,
    MISFIT,
    RELATION_TYPES,
    check_blob,
    element_of,
    find_conversion,
    is_array,
)
from inkgrove.schema.validation import BoundedCache, check_patterns, make_quick_validator, make_validator

__all__ = [
    "CHECKS",
    "CONVERSIONS",
    "MISFIT",
    "RELATION_TYPES",
    "BoundedCache",
    "End",
    "Field",
    "FieldId",
    "FieldUpdate",
    "FoldedRow",
    "InstanceChange",
    "InstanceFold",
    "LintReport",
    "LogContext",
    "LogFold",
    "LogMessage",
    "Migration",
    "NamedEntry",
    "NoOtherLogs",
    "OtherLogs",
    "Ruling",
    "Schema",
    "Version",
    "ViewDefinition",
    "append_version",
    "carry_value",
    "check_blob",
    "check_patterns",
    "check_value",
    "compile_migration",
    "describe_version",
    "differences",
    "element_of",
    "find_conversion",
    "fold_further",
    "fold_log",
    "fold_schema",
    "is_array",
    "lint_migration",
    "make_quick_validator",
    "make_validator",
    "patterns_of",
    "relations_of",
]
