"""Raft: the one package that imports PySyncObj. `adapter.Raft` is what the node uses.

What the library does wrong is corrected where its messages arrive (`core.inbound`, `log.append_filter`), where its log
is kept (`log`), before it elects (`core.prevote`, `core.elections`) and in place of its own methods (`core.overrides`).
docs/explanation/raft.md says what that is, and which test fails without each correction.
"""
