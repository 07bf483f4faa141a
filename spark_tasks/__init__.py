"""Kinds that run on Spark. They arrive by entry point like anybody's, and import pyspark only when run."""
