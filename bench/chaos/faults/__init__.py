"""What is done to the nodes. Each fault is a value: whom it strikes, how, for how long, and how it is mended."""
