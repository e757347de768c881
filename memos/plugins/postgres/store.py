"""The store of `memos.stores` on a PostgreSQL server; imports psycopg only once a vault is opened."""

from __future__ import annotations

from memos.errors import VaultError
from memos.infrastructure.vault.blobs.vault_files import PlainFiles, PlainFormat
from memos.infrastructure.vault.stores import PLAIN_SEALING, OpenStore, Place, Sealing
from memos.plugins.postgres import vault_server
from memos.plugins.postgres.server_shelf import ServerShelf
from memos.plugins.progress import Show


class PostgresStore:
    """A `StoreKind`."""

    elsewhere = (
        "run `pg_dump` on its database, which holds the payloads, too, but for those in the bucket of vault.blobs"
    )

    def claims(self, place: Place) -> bool:
        return place.url is not None or vault_server.is_on_server(place.folder)

    def open(self, place: Place, alone: bool) -> OpenStore:
        database = vault_server.opened(place.folder, vault_server.url_of(place.folder, place.url, place.key))
        shelf = ServerShelf(database)
        return OpenStore(database, PlainFiles(place.folder), PLAIN_SEALING, shelf, database.identity())

    def sealing(self, place: Place) -> Sealing:
        raise VaultError(f"{place.folder} is of a vault on a server, which has no files here; {self.elsewhere}")

    def problems(self, place: Place, show: Show, sealing: Sealing | None = None) -> list[str]:
        """What is wrong with the rows and payloads on a server, whose files are its own."""
        from memos.plugins.care import check  # with all that it reads vaults by

        database = vault_server.opened(place.folder, vault_server.url_of(place.folder, place.url))
        try:
            return check.of_rows(place.folder, database.snapshot, ServerShelf(database), PlainFormat(), show)
        except (TypeError, ValueError, LookupError) as error:
            return [f"{database.name}: a row holds what was never written ({error}); bring back a dump"]
        finally:
            database.close()


POSTGRES_STORE = PostgresStore()
