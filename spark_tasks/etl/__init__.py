"""The kind `etl`: rows from a source, transformed by Spark, into a sink, each batch once."""
