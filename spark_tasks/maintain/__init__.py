"""The kind `maintain`: keeps a Delta table in shape, without Spark."""
