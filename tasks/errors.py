"""The exceptions that end an attempt: raised by a kind, or by the context that a kind calls."""


class Fenced(Exception):
    """Another attempt has taken the run over, so this attempt's token is no longer the current one. It must stop."""


class MissingSecret(Exception):
    """A secret that the params refer to is not on this member. The run fails without retries."""


class Failed(Exception):
    """Raised by a kind with a message that is enough for users. The attempt fails, and its log has no traceback."""


class Away(Failed):
    """Raised by a kind if a server or store that the task needs does not answer. The run waits and tries again.

    Such attempts do not use up the run's retries: see `away_s` in `tasks.definition.spec.Retry`.
    """


class Unretryable(Exception):
    """Raised by a kind if another attempt would fail the same way. The run fails without retries."""
