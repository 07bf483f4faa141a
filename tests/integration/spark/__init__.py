"""Tests of the pipeline on real Spark, in one process with it."""
