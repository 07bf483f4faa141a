"""The module tarfile, in a version whose `extractall` has filters."""

import sys

if sys.version_info >= (3, 12):
    import tarfile
else:  # Debian 12 has Python 3.11.2, whose tarfile cannot check members as it unpacks them
    from backports import tarfile

__all__ = ["tarfile"]
