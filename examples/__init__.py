"""What Rota looks like in use."""
