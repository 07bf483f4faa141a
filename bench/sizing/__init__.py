"""What the measurement of size is made of."""
