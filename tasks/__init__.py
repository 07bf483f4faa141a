"""Tasks: their definition, the places of their files, and the kinds that do their work.

What lies here directly is what a kind imports, one in a package of its own too: those names stay. Imports neither
`node` nor `hashing`.
"""
