"""The params that name a PostgreSQL database, and the check whether a task may reach its servers."""

import os
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tasks.access import Access, Use, check_address, is_within, postgres_address
from tasks.file_guard import FileGuard
from tasks.needs import CredentialGroup
from tasks.postgres.url import parse
from tasks.reach import Reach
from tasks.secret import Reference

_CERTIFICATES: Final = (
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
)
"""Folders in which systems keep certificates, which are public."""


def _postgres_url(url: str) -> str:
    """Raise `ValueError` for a URL that contains a secret, or sets a parameter that tasks may not set."""
    parse(url)
    return url


def check_certificate(access: Access, path: str | None) -> None:
    """Raise `AccessRefused` unless tasks may read a file of certificates, which they may in the system's folders."""
    if path is not None and not _is_systems(path):
        FileGuard(access, "source").resolve(path)


def certificate_reaches(path: str | None, field: str) -> tuple[Reach, ...]:
    """Return a file of certificates that the param `field` names, as a `Reach`; empty if it is in a system's folder."""
    return () if path is None or _is_systems(path) else (Reach(field, "source", path, path),)


def _is_systems(path: str) -> bool:
    return any(is_within(os.path.realpath(path), place) for place in _CERTIFICATES)


class PostgresConnection(BaseModel):
    """A database on a PostgreSQL server that the member can reach."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(max_length=4096), AfterValidator(_postgres_url)] = Field(
        description="The database's URL as libpq takes it, without a password",
        examples=["postgresql://backup@db.internal:5432/orders"],
    )
    password: Reference | None = Field(
        default=None, description="A reference to the password; null: libpq's own means (PGPASSFILE, peer, ...)"
    )

    def check(self, access: Access, use: Use = "source") -> None:
        """Raise `AccessRefused` unless `access` allows the servers and the file of root certificates."""
        for address in self.addresses():
            check_address(access, use, address, self.url)
        check_certificate(access, parse(self.url).root_certificate)

    def certificate(self, field: str) -> tuple[Reach, ...]:
        """Return the URL's file of root certificates, as a `Reach`; empty if it is in a folder of the system."""
        return certificate_reaches(parse(self.url).root_certificate, field)

    @property
    def own_credentials(self) -> tuple[CredentialGroup, ...]:
        """The credential files of the node's user that libpq uses for this connection."""
        return ("postgres_certificate",) if self.password is not None else ("postgres_certificate", "postgres_password")

    def addresses(self) -> tuple[str, ...]:
        """Return the servers' addresses, as `tasks.access.check_address` takes them."""
        return tuple(postgres_address(host, port) for host, port in parse(self.url).servers)
