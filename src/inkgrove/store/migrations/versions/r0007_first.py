"""The first revision that was released. A new store is made from the tables of the code: no step leads here.

A change of the tables is a revision of its own beside this one, `log_store.NEWEST` names it, and `tests/store` has a
test that a store of the revision before becomes what a new store is.
"""

revision = "0007"
down_revision = None
