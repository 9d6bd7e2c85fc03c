"""An example for every outcome code and for everything that ends a schema; `make_docs.py` puts them into docs/outcomes.md.

Each is (what happens, the world under tests/vectors/views that shows it).
"""

OUTCOMES: dict[str, tuple[str, str]] = {
    "applied": ("A create at version 2 of a schema that is at version 4.", "slothmail-1-create"),
    "instance.erased": (
        "A delete, when the node has erased the create and kept its entry.",
        "delete-of-an-instance-without-content-is-applied",
    ),
    "schema.unknown": ("A create names a schema whose log has not arrived yet.", "unknown-schema-is-pending"),
    "schema.version-unknown": ("A create names version 5; the log is held up to 4.", "unknown-version-is-pending"),
    "schema.no-fields-yet": (
        "A create at version 1, and version 2 has not been published.",
        "no-fields-yet-is-pending",
    ),
    "schema.version-invalid": (
        "A create names version 4, and the migration of version 3 creates a field that exists.",
        "creating-an-existing-field-is-invalid",
    ),
    "schema.off-live-path": (
        "An update at version 4, after version 5 has reverted the schema to 3.",
        "update-names-version-off-live-path-is-obsolete",
    ),
    "instance.wrong-log": ("A create in log 0.", "instance-message-in-log-0-is-in-the-wrong-log"),
    "instance.unknown-field": (
        "A create at version 2 fills `attachments`, which version 3 adds.",
        "unknown-field-quarantines-the-message",
    ),
    "instance.wrong-type": (
        "`count: 1.0` for an integer, or `done: 1` for a boolean.",
        "each-type-refuses-other-values",
    ),
    "instance.failed-validation": (
        "A two-line `subject` in a create that itself names version 4.",
        "failed-validation-quarantines-at-the-own-version",
    ),
    "instance.not-a-create": (
        "An update names another author's instance, or an entry after itself; a delete names somebody else's.",
        "foreign-instance-is-refused",
    ),
    "instance.other-schema": (
        "An update names schema 13 for an instance of schema 12.",
        "update-and-delete-must-name-the-schema-of-the-create",
    ),
    "instance.create-not-held": ("An update arrives before the create's payload.", "create-not-held-is-pending"),
    "instance.create-pending": ("A delete of an instance whose schema is not known yet.", "unknown-schema-is-pending"),
    "instance.create-quarantined": (
        "An update of an instance whose create had a wrong type.",
        "messages-of-a-quarantined-create-are-quarantined",
    ),
    "instance.create-obsolete": (
        "An update of an instance that was created off the live path.",
        "messages-of-an-obsolete-create-are-obsolete",
    ),
    "instance.ended-by-migration": (
        "A create at version 2; version 3 removes the only field.",
        "migration-that-removes-the-last-field-ends-rows-created-before",
    ),
    "instance.after-delete": ("An update, or a second delete, behind a delete.", "after-a-delete-nothing-is-applied"),
    "instance.nothing-left": (
        "An update of `attachments` alone, and the newest version has removed it.",
        "update-with-nothing-left-to-write-is-obsolete",
    ),
}

SCHEMA_ENDS: dict[str, tuple[str, str]] = {
    "schema.not-a-schema": ("The log starts with a migration.", "schema-must-start-with-schema-meta"),
    "schema.not-a-schema-message": ("A create stands in the schema's log.", "instance-message-in-a-schema-log-ends-it"),
    "schema.unknown-type": ("`type: number`.", "malformed-schema-entry-ends-it"),
    "schema.field-exists": ("`Subject` is created, and `subject` exists.", "creating-an-existing-field-is-invalid"),
    "schema.no-such-field": ("A field that was removed is updated.", "touching-a-missing-field-is-invalid"),
    "schema.too-many-fields": ("A 257th field.", "schema-has-at-most-256-fields"),
    "schema.bad-default": (
        "`type: integer, default: none`.",
        "default-against-its-own-type-or-validation-is-invalid",
    ),
    "schema.bad-pattern": (
        "`validation: '(?=x)'`: RE2 has no look-ahead.",
        "validation-where-it-does-not-exist-is-invalid",
    ),
    "schema.too-many-patterns": (
        "A 17th pattern that is large, such as `.{1,500}`.",
        "patterns-of-a-version-are-bounded-together",
    ),
    "schema.validation-not-allowed": (
        "A pattern for an integer.",
        "validation-where-it-does-not-exist-is-invalid",
    ),
    "schema.relation-only": ("`cascade: true` for a text.", "schema-and-cascade-are-for-relations-only"),
    "schema.bad-revert-target": ("Version 5 reverts to version 5.", "revert-needs-an-earlier-version"),
}


CONTROL_STATES: dict[str, tuple[str, str]] = {
    "document.in-effect": ("It is the document of its identity.", "controller-speaks-for-the-first-key"),
    "document.replaced": (
        "It counts where it stands, and a newer one stands in its place.",
        "controller-speaks-for-the-first-key",
    ),
    "document.overruled": (
        "It is in a part of its log that does not count, or under a document that did not lead to it.",
        "first-key-overrules-the-controller",
    ),
    "document.waits": (
        "What it stands under, or entry 1 of its own log 0, is not held with its payload.",
        "document-under-an-entry-not-held-waits",
    ),
    "key.counts": ("The key is the identity's.", "end-by-another-key-of-the-identity"),
    "key.ended": ("The key is the identity's and revoked.", "end-by-the-first-key-and-by-ended-keys"),
    "key.unclaimed": (
        "The document lists the key, which has not said that it is the identity's.",
        "end-by-a-key-that-does-not-belong-is-refused",
    ),
    "key.contested": (
        "Several entries 1 of its log 0 do not all name one identity: it is nobody's.",
        "contested-key-is-nobodys",
    ),
    "identity.forked": (
        "Log 0 of its first key is forked, and nothing counts from there on.",
        "fork-of-log-0-without-a-controller-ends-what-follows",
    ),
    "identity.words-used-twice": (
        "Log 0 of its first key is forked behind a document that named a controller: one branch counts.",
        "words-used-twice-do-not-end-an-identity",
    ),
}
"""What each state means, and a world that shows it."""
