"""Random texts over the grammar of Spark's parser, and a second, naive look at what the checker accepts of them."""
