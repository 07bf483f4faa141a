"""The kind `command`: runs a program of the task's author, which reports to its attempt through `rota ctx`."""
