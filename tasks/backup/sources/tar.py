"""Python's tarfile, in a version whose `extractall` knows filters."""

import sys

if sys.version_info >= (3, 12):
    import tarfile
else:  # Debian 12 has 3.11.2, whose tarfile checks nothing that it unpacks
    from backports import tarfile

__all__ = ["tarfile"]
