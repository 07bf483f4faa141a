"""The exceptions that end an attempt: raised by a kind, or by the context that a kind calls."""


class Fenced(Exception):
    """The attempt's token is no longer the run's current one: another attempt has taken the run over. Stop."""


class MissingSecret(Exception):
    """A secret that the params refer to is not on this member. The run fails without retries."""


class Failed(Exception):
    """Raised by a kind if the message says everything. The attempt fails, and its log has no traceback."""


class Away(Failed):
    """Raised by a kind if what the task needs, such as a server, does not answer. The run waits and tries again.

    Such attempts do not use up the run's retries: see `away_s` in `tasks.definition.spec.Retry`.
    """


class Unretryable(Exception):
    """Raised by a kind if another attempt would fail the same way. The run fails without retries."""
