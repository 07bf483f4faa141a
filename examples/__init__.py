"""Examples of using Rota."""
