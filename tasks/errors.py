"""How an attempt ends that does not succeed, by name: raised by a kind, or at it by its context."""


class Fenced(Exception):
    """The attempt's token is no longer the run's: another member has taken the work over. Stop."""


class MissingSecret(Exception):
    """A secret that the params refer to is not on this member. The run fails without retries."""


class Failed(Exception):
    """Raised by a kind where its message says all: a failure like any other, but the log has no traceback of it."""


class Unretryable(Exception):
    """Raised by a kind where another attempt would fail the same way. The run fails at once."""
