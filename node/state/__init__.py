"""The replicated state as a value, the entries that change it, and their packed forms. Pure."""
