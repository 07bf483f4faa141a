"""Makes the reference pages in docs/reference/ from the code. Each module has `PATH` and `render() -> str`."""
