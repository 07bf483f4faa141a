"""Tells traces (OpenTelemetry) and lineage (OpenLineage) of runs to whoever collects them."""
