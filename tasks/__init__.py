"""Tasks: their definition, the places of their files, and the kinds that do their work.

The modules directly in this folder are those that a kind imports, even a kind in another package: their names must not
change. This package imports neither `node` nor `hashing`.
"""
