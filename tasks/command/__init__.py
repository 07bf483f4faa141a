"""The kind `command`: a program of the task's author, which speaks to its attempt by `rota ctx`."""
