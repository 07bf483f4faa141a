"""A folder's tree as tar archives: the order of its entries, how they are read, and the archives' headers."""
