"""The API (DESIGN.md, section 9): any member answers anything."""
