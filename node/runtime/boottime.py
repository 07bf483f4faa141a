"""The clock of leases and deadlines: CLOCK_BOOTTIME, which all processes of a machine share."""

import time


def boottime_s() -> float:
    """Seconds since the machine started. The clock runs on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
