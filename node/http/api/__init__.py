"""The API, one file a topic: its routes, the shapes of its requests and responses, and how the state is shown."""
