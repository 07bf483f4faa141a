"""What the measurement under load is made of."""
