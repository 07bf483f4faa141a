"""Data that changes while it is read: rows, tables, files and pages, and a check of what a reader made of them."""
