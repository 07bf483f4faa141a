"""The params that name a MariaDB server, and the check whether a task may reach it."""

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tasks.access import Access, Use, check_address
from tasks.backup.sources.mariadb.url import parse_mariadb
from tasks.needs import CredentialGroup
from tasks.postgres.connection import certificate_reaches, check_certificate
from tasks.reach import Reach
from tasks.secret import Reference

MARIADB_TOOLS: Final = "tasks.backup.sources.mariadb.server:mariadb_programs"
"""The function that finds MariaDB's programs (`tasks.needs.Tools`)."""


def _mariadb_url(url: str) -> str:
    parse_mariadb(url)
    return url


class MariadbConnection(BaseModel):
    """A MariaDB server, or a database there, that the member can reach."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(max_length=4096), AfterValidator(_mariadb_url)] = Field(
        description="The server's URL without a password; with `?tls=verified` the server's certificate is checked, "
        "against the system's authorities or those in `&ca=/FILE`",
        examples=["mysql://backup@db.internal:3306/", "mysql://root@/?socket=/run/mysqld/mysqld.sock"],
    )
    password: Reference | None = Field(
        default=None, description="A reference to the password; null: none, as for accounts of the plugin unix_socket"
    )

    def check(self, access: Access, use: Use = "source") -> None:
        """Raise `AccessRefused` unless `access` allows the server and the URL's file of certificates."""
        named = parse_mariadb(self.url)
        check_address(access, use, named.address, self.url)
        check_certificate(access, named.ca or None)

    def certificate(self, field: str) -> tuple[Reach, ...]:
        """Return the URL's file of certificates, as a `Reach`; empty if it is in a folder of the system."""
        return certificate_reaches(parse_mariadb(self.url).ca or None, field)

    @property
    def own_credentials(self) -> tuple[CredentialGroup, ...]:
        """Return none: MariaDB's programs read no file of the node's user."""
        return ()

    def addresses(self) -> tuple[str, ...]:
        """Return the server's address, as `tasks.access.check_address` takes it."""
        return (parse_mariadb(self.url).address,)
