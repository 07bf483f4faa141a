"""Kinds that run on Spark. They are found by entry point, like any kind, and import pyspark only when they run."""
