"""Agreement: the one package that imports pysyncobj."""
