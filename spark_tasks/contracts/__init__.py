"""The protocols of all sources and sinks, and functions that several of them share: names, rows, values."""
