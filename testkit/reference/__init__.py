"""Reference pages that are written from the code.

Each module here with `PATH` (of the page, from the root of the repository) and `render()` (its text) makes one page.
`make reference` (`python -m testkit.reference`) writes them all; tests/unit/test_reference.py compares them with what
the code makes.
"""
