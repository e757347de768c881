"""Keeps the rows of a vault on a PostgreSQL server, so that several machines share it.

Knows connections, and what makes a write whole and lasting there; must not know what a cube is.

    writer      one connection, whose turn an advisory lock of the server gives: in the order of asking, and given up
                with the connection, as when a process is killed
    readers     a pool; each statement sees what was committed before it
    presence    one connection that holds a shared lock while the vault is open, so that one knows when it is alone

Vectors lie in columns of pgvector's type, so that other programs can compare them where they are; memos itself compares
exactly and in memory, among what the caller may see.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from memos.cube import new_id
from memos.errors import VaultError, how_to_install
from memos.infrastructure.vault.store import transactions
from memos.infrastructure.vault.store.extension_tables import ExtensionTable
from memos.infrastructure.vault.store.schema import SCHEMA_VERSION, UPGRADES, require_known
from memos.infrastructure.vault.store.transactions import Transactions, WriterLock, too_long
from memos.plugins.postgres.postgres_dialect import COMMITS, READING, defined, table_names, tables, translated

try:
    import psycopg
    from pgvector import Vector
    from pgvector.psycopg import register_vector
    from psycopg.adapt import Dumper, Loader
    from psycopg.pq import Format, TransactionStatus
    from psycopg.types import TypeInfo
    from psycopg.types.string import StrDumper
    from psycopg_pool import ConnectionPool
except ImportError as error:
    raise VaultError(f"vault.url needs the package {error.name}; {how_to_install('postgres')}, or unset it") from error

log = logging.getLogger("memos")
OLDEST = 140_000  # server_version_num
EXTENSION = "vector"
_READERS = 8  # connections
_READ_WAIT_S = 10.0  # for a connection
_BATCH = 1000  # rows
_WRITER, _OPEN, _GATE = 1, 2, 3  # advisory locks, of a schema
_PATIENCE = {  # a server that says nothing for 15 s is gone
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
    "application_name": "memos",
}
_SECRET = {"password", "sslpassword"}
_PASSWORD = re.compile(r"(password\s*=\s*)('[^']*'|\S+)")
_OURS = "relkind = 'r' AND relnamespace = current_schema()::regnamespace"
_STAMP = """WITH stamped AS (UPDATE clock SET at = %s)
            INSERT INTO commits VALUES (%s, %s) ON CONFLICT (writer) DO UPDATE SET token = excluded.token
            RETURNING pg_current_xact_id()::text"""
_SMALL = ("versions", "heads", "facts", "transitions", "repeats", "vectors", "jobs", "audit")  # where texts stand
_LARGE = ("readings", "payloads")  # what was made of them


class PostgresDatabase(Transactions):
    """A `Store`. All errors name the server, and none its password."""

    reading = READING

    def __init__(self, url: str) -> None:
        """url: postgresql://USER@HOST/NAME, as libpq reads it; the tables are in the first schema of its search path,
        and are made if absent. Raises VaultError."""
        self._url, self._given = url, _parsed(url)
        name = without_password(url)
        super().__init__(name, WriterLock(name, self._turn), (psycopg.Error,))
        self._closed = False
        self._away = False  # the server, when it was asked last
        self._reading, self._idle = 0, threading.Condition()
        self._number: str | None = None  # of the transaction that was stamped last, as the server counts
        self._me, self._token = new_id(), ""  # by which it is told from another that a restarted server gave its number
        self._writer = self._connected()
        self._presence: Any = None
        try:
            self._key = self._require_server()
            with self._lock.held(transactions.WAIT_S):
                self._prepare()
        except BaseException as error:
            self._writer.close()
            if isinstance(error, psycopg.Error):
                raise VaultError(f"{self.name} cannot be used ({why(error)}); {_WAY_OUT}") from error
            raise
        self._pool = self._new_pool()

    def close(self) -> None:
        with self._lock.among_threads(-1):
            if self._closed:
                return
            with self._idle:
                self._closed = True
                self._idle.wait_for(lambda: self._reading == 0)
            self._pool.close()
            if self._token:
                with suppress(psycopg.Error):  # gone already, or left behind: a row of no meaning
                    self._writer.execute("DELETE FROM commits WHERE writer = %s", (self._me,))
            self._writer.close()
            if self._presence is not None:
                self._presence.close()

    # connections

    def _options(self) -> dict[str, Any]:
        return {"autocommit": True, **{k: v for k, v in _PATIENCE.items() if k not in self._given}}

    def _connected(self) -> Any:
        """Raises VaultError."""
        try:
            connection = psycopg.connect(self._url, **self._options())
        except psycopg.Error as error:
            raise VaultError(f"{self.name} cannot be reached ({why(error)}); {_WAY_OUT}") from error
        return connection

    def _new_pool(self) -> ConnectionPool[Any]:
        return ConnectionPool(
            self._url,
            kwargs=self._options(),
            min_size=0,
            max_size=_READERS,
            num_workers=1,
            timeout=_READ_WAIT_S,
            configure=self._adapt,
            name=self.name,
            open=True,
        )

    def _adapt(self, connection: Any) -> None:
        """What values are on the server."""
        connection.adapters.register_dumper(str, StrDumper)  # as text, so that it is known in every place
        connection.adapters.register_dumper(bool, _Number)
        register_vector(connection)
        connection.adapters.register_loader("vector", _Floats)
        if not connection.execute("SELECT current_setting('synchronous_commit') != 'off'").fetchone()[0]:
            connection.execute("SET synchronous_commit = on")  # what is acknowledged is lasting

    def _require_server(self) -> int:
        """The number that the vault's locks have in common. Raises VaultError."""
        version = self._writer.info.server_version
        if version < OLDEST:
            raise VaultError(
                f"{self.name} is PostgreSQL {version // 10_000}, and memos needs {OLDEST // 10_000} or later; "
                "upgrade the server, or name another in vault.url"
            )
        sql = "SELECT current_setting('server_encoding'), current_schema(), hashtext(current_schema()) & 65535"
        encoding, schema, key = self._writer.execute(sql).fetchone()
        if encoding != "UTF8":
            raise VaultError(f"{self.name} keeps texts as {encoding}; make a database with ENCODING 'UTF8' for memos")
        if schema is None:
            raise VaultError(f"{self.name} has no schema to put tables in; create the one that its search_path names")
        return (0x6D656D6F << 32) + (int(key) << 8)

    def _prepare(self) -> None:
        """Make the tables of a new vault, or bring them up to date; all or nothing."""
        if not self._writer.execute("SELECT 1 FROM pg_extension WHERE extname = %s", (EXTENSION,)).fetchone():
            try:
                self._writer.execute(f"CREATE EXTENSION {EXTENSION}")
            except psycopg.Error as error:
                raise VaultError(
                    f"{self.name} lacks pgvector ({why(error)}); install it on the server, and let its administrator "
                    f"run `CREATE EXTENSION {EXTENSION}` in the database"
                ) from error
        if TypeInfo.fetch(self._writer, "vector") is None:
            raise VaultError(f"{self.name} has pgvector in a schema that is not in its search_path; add that to it")
        self._adapt(self._writer)
        there = "SELECT to_regclass(quote_ident(current_schema()) || '.memos_vault') IS NOT NULL"
        if not self._writer.execute(there).fetchone()[0]:
            with self._writer.transaction():
                self._writer.execute(";\n".join(tables()))
        self._writer.execute(COMMITS)
        self.id, version = self._writer.execute("SELECT id, schema FROM memos_vault").fetchone()
        require_known(self.name, version)
        if version < SCHEMA_VERSION:
            with self._writer.transaction():
                for step in range(version, SCHEMA_VERSION):
                    for statement in UPGRADES[step]:
                        self.define(statement)
                self._writer.execute("UPDATE memos_vault SET schema = %s", (SCHEMA_VERSION,))

    # one at a time

    @contextmanager
    def _turn(self, wait_s: float) -> Iterator[None]:
        """Of this process, among all that the server knows."""
        sql = f"SET lock_timeout = {max(1, round(wait_s * 1e3))}; SELECT pg_advisory_lock({self._lock_number(_WRITER)})"
        try:
            try:
                self._writer.execute(sql)
            except psycopg.OperationalError:
                if self._closed or not self._writer.closed:
                    raise
                self._writer = self._connected()  # the server was away, and nothing was begun
                self._adapt(self._writer)
                if self._presence is not None:
                    self._be_present()
                self._writer.execute(sql)
        except psycopg.errors.LockNotAvailable as error:
            raise too_long(self.name, "another process, here or on another machine,", "pg_locks") from error
        except psycopg.Error as error:
            raise self._not_written(error) from error
        except BaseException:  # ctrl-C: the lock may be there, or still come
            self._writer.close()
            raise
        try:
            yield
        finally:
            if self._writer.info.transaction_status == TransactionStatus.IDLE:
                with suppress(psycopg.OperationalError):  # then the lock is given up with the connection
                    self._writer.execute(f"SELECT pg_advisory_unlock({self._lock_number(_WRITER)})")
            else:  # cut off within a statement, of which the connection is of no use any more
                self._writer.close()

    def _lock_number(self, which: int) -> int:
        return self._key + which

    @contextmanager
    def alone(self, leaving: bool = False) -> Iterator[bool]:
        gate, here = self._lock_number(_GATE), self._lock_number(_OPEN)
        try:
            alone = self._came(gate, here)
        except VaultError:
            if not leaving:
                raise
            yield False  # the server is away, and so is what was held there
            return
        try:
            yield alone
        finally:
            with suppress(psycopg.Error):  # where the server is away, so are its locks
                if leaving:
                    self._presence.execute("SELECT pg_advisory_unlock_all()")
                    self._presence.close()
                else:
                    shared = (
                        f"SELECT pg_advisory_lock_shared({here}); SELECT pg_advisory_unlock({here});" if alone else ""
                    )
                    self._presence.execute(f"{shared} SELECT pg_advisory_unlock({gate})")

    def _came(self, gate: int, here: int) -> bool:
        """Through the gate, which is held then; whether nobody else is here. Raises VaultError."""
        entry = f"SET lock_timeout = {transactions.WAIT_S * 1e3:.0f}; SELECT pg_advisory_lock({gate})"
        try:
            if self._presence is None:
                self._presence = self._connected()
            try:
                self._presence.execute(entry)
            except psycopg.OperationalError:
                if not self._presence.closed:
                    raise
                self._presence = self._connected()  # the server was away
                self._presence.execute(entry)
            self._presence.execute(f"SELECT pg_advisory_unlock_shared({here})")  # a warning where it is not held
            [alone] = self._presence.execute(f"SELECT pg_try_advisory_lock({here})").fetchone()
            if not alone:
                self._presence.execute(f"SELECT pg_advisory_lock_shared({here})")
        except psycopg.errors.LockNotAvailable as error:
            raise too_long(self.name, "another process that opens or leaves the vault", "pg_locks") from error
        except psycopg.Error as error:
            raise self._unreadable(error) from error
        return bool(alone)

    def _be_present(self) -> None:
        """Anew, where the server was away."""
        self._presence.close()
        self._presence = self._connected()
        self._presence.execute(f"SELECT pg_advisory_lock_shared({self._lock_number(_OPEN)})")

    # transactions

    @property
    def in_transaction(self) -> bool:
        """In this thread."""
        return self._lock.mine and self._writer.info.transaction_status != TransactionStatus.IDLE

    @contextmanager
    def _outermost(self, lasting: bool) -> Iterator[None]:
        """lasting: False for what the server may lose when it dies within the next second, whole."""
        with self.writing(), self._block(outermost=True):
            self._number = None
            if not lasting:
                self._writer.execute("SET LOCAL synchronous_commit = off")
            yield
            if self._stamped:
                self._token = new_id()
                values = (self._stamped.isoformat(), self._me, self._token)
                [self._number] = self._writer.execute(_STAMP, values).fetchone()

    def _nested(self) -> AbstractContextManager[None]:
        return self._block()

    @contextmanager
    def _block(self, outermost: bool = False) -> Iterator[None]:
        whole = False
        try:
            with self._writer.transaction():
                yield
                self._require_intact()
                whole = outermost
        except psycopg.Error as error:
            if not (whole and self._writer.closed and self._was_kept(error)):
                raise self._not_written(error) from error

    def _was_kept(self, error: psycopg.Error) -> bool:
        """Whether a commit came through whose confirmation was lost, as the server tells once it is back. Raises
        VaultError where it stays away."""
        until, unknown = time.monotonic() + transactions.WAIT_S, error
        while self._number is not None and time.monotonic() < until:
            try:
                with psycopg.connect(self._url, **self._options()) as asked:
                    [said] = asked.execute("SELECT pg_xact_status(%s::xid8)", (self._number,)).fetchone() or [None]
                    if said != "in progress":
                        mine = "SELECT 1 FROM commits WHERE writer = %s AND token = %s"
                        return asked.execute(mine, (self._me, self._token)).fetchone() is not None
            except psycopg.errors.InvalidParameterValue:  # a number yet to be given: the crash lost who had it
                return False
            except psycopg.Error as away:
                unknown = away
            time.sleep(0.1)
        raise VaultError(
            f"{self.name} went away while a change was confirmed ({why(unknown)}): it is kept whole or not at all; "
            "read it again when the server is back"
        ) from error

    def _require_intact(self) -> None:
        """A commit over a lost connection, or of what has failed, says nothing."""
        if self._writer.closed:
            raise psycopg.OperationalError("the connection was lost")
        if self._writer.info.transaction_status == TransactionStatus.INERROR:
            raise self._half()

    def _not_written(self, error: BaseException) -> VaultError:
        return VaultError(
            f"{self.name} was not written ({why(error)}); nothing of this change is kept, make sure that the server "
            "runs and its disk has room, and try again"
        )

    def _unreadable(self, error: BaseException) -> VaultError:
        return VaultError(f"{self.name} cannot be read ({why(error)}); make sure that the server runs, and try again")

    # statements

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        statement = translated(sql)
        try:
            if self._lock.mine:
                found: list[tuple[Any, ...]] = self._writer.execute(statement, values, binary=True).fetchall()
                return found
            return self._read(statement, values)
        except psycopg.Error as error:
            raise (self._not_written if self.in_transaction else self._unreadable)(error) from error

    def _read(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with self._idle:
            if self._closed:
                raise psycopg.InterfaceError("the vault is closed")
            self._reading += 1
        try:
            pool = self._pool
            if not self._away:
                try:
                    return _asked(pool, statement, values)
                except psycopg.OperationalError as error:
                    if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P")):
                        raise
                    self._away = True
            self._connected().close()  # told at once where it still is, for which the pool would wait
            pool, self._away = self._renewed(pool), False
            return _asked(pool, statement, values)
        finally:
            with self._idle:
                self._reading -= 1
                self._idle.notify_all()

    def _renewed(self, old: ConnectionPool[Any]) -> ConnectionPool[Any]:
        """Where the server is back: connections from before are of no use."""
        with self._idle:
            if self._pool is old:
                self._pool = self._new_pool()
                threading.Thread(target=old.close, daemon=True).start()  # takes as long as who reads through it
            return self._pool

    def seconds(self) -> float:
        return float(self.rows("SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)")[0][0])

    def write(self, sql: str, *values: object) -> int:
        """Within a transaction; the number of rows written."""
        return int(self._writer.execute(translated(sql), values).rowcount)

    def define(self, statement: str) -> None:
        """Within a transaction: make a table or an index."""
        self._writer.execute(translated(defined(statement)), ())

    def write_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Within a transaction."""
        with self._writer.cursor() as cursor:
            cursor.executemany(translated(sql), rows)

    def floats(self, vector: npt.NDArray[np.float32]) -> Vector:
        return Vector(vector)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """All rows as they are at this moment, in a connection of its own. Raises VaultError."""
        connection = self._connected()
        try:
            self._adapt(connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield PostgresSnapshot(self.name, connection)
        except psycopg.Error as error:
            raise self._unreadable(error) from error
        finally:
            connection.close()

    # upkeep

    def identity(self) -> str:
        """What a dump that was restored has not: the cluster, the database and the schema that the tables are in."""
        sql = """SELECT (SELECT system_identifier FROM pg_control_system()) || ' ' ||
                 (SELECT oid FROM pg_database WHERE datname = current_database()) || ' ' ||
                 (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"""
        return str(self.rows(sql)[0][0])

    def sizes(self) -> dict[str, int]:
        """Without payloads, which are counted by themselves."""
        sql = f"""SELECT CAST(coalesce(sum(pg_total_relation_size(oid)), 0) AS BIGINT) FROM pg_class
                  WHERE {_OURS} AND relname != 'payloads'"""
        return {"database": int(self.rows(sql)[0][0])}

    def journals(self) -> dict[str, int]:
        return {}

    def shrink(self) -> None:
        """The pages lie in the server's memory."""

    def vacuum(self) -> bool:
        """Write the tables that texts stood in anew, without what was deleted. What was made of texts is ten times as
        large, and stays on free pages until they are used again, or `compact`; the server's log and its copies are its
        administrator's."""
        try:
            self._writer.execute("SET lock_timeout = 1000")
            self._writer.execute(f"VACUUM (FULL) {', '.join(_SMALL)}")
            self._writer.execute(f"VACUUM {', '.join(_LARGE)}")
        except psycopg.Error as error:
            log.debug("%s: VACUUM failed (%s)", self.name, why(error))
            return False
        return True

    def clear_logs(self) -> bool:
        """True: it has none of its own."""
        return True

    def compact(self) -> None:
        """Raises VaultError if somebody is in the way."""
        with self.writing():
            names = self.rows(f"SELECT relname::text FROM pg_class WHERE {_OURS}")
            try:
                self._writer.execute(f"VACUUM (FULL) {', '.join(name for (name,) in names)}")
            except psycopg.Error as error:
                raise VaultError(
                    f"{self.name} was not compacted ({why(error)}); it needs as much free disk as it is large, and "
                    "nobody else who reads or writes; try again"
                ) from error


def _asked(pool: ConnectionPool[Any], statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    with pool.connection() as connection:
        found: list[tuple[Any, ...]] = connection.execute(statement, values, binary=True).fetchall()
        return found


class PostgresSnapshot:
    """One transaction that reads; not thread safe."""

    side_problem, padding, way_out = "", "", "see the server's log, or bring back a dump with `pg_restore`"

    def __init__(self, name: str, connection: Any) -> None:
        self._name, self._connection = name, connection

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Raises VaultError."""
        return list(self.each(sql, *values))

    def each(self, sql: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The same, some at a time. Raises VaultError."""
        try:
            with self._connection.cursor(name=new_id(), binary=True) as cursor:
                cursor.itersize = _BATCH
                cursor.execute(translated(sql), values)
                yield from cursor
        except psycopg.Error as error:
            raise VaultError(f"{self._name} cannot be read ({why(error)}); see the server's log") from error

    def damage(self, of: str) -> list[str]:
        """Tables that are gone. A server looks after its files itself, see its amcheck and data checksums."""
        gone = table_names() - self._tables() if of == "main" else ()
        return [f"table {name} is gone" for name in sorted(gone)]

    def structure(self, extensions: Iterable[ExtensionTable]) -> Iterator[str]:
        """What a row refers to is held together by the server."""
        known = table_names() | {table.name for table in extensions}
        yield from (f"table {name} is none of memos" for name in sorted(self._tables() - known))

    def _tables(self) -> set[str]:
        return {name for (name,) in self.rows(f"SELECT relname::text FROM pg_class WHERE {_OURS}")}


class _Number(Dumper):
    """True and False as they are kept in columns of numbers."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _Floats(Loader):
    """A vector as its little-endian bytes."""

    format = Format.BINARY

    def load(self, data: Any) -> bytes:
        return np.frombuffer(data, ">f4", offset=4).astype("<f4").tobytes()


def why(error: BaseException) -> str:
    """What libpq says, in a line, without a password."""
    said = " ".join(str(error).split()) or type(error).__name__
    return _PASSWORD.sub(r"\1…", said)


def without_password(url: str) -> str:
    """The same vault, for messages and for what is written down. Raises VaultError for what is no such URL."""
    given = _parsed(url)
    return psycopg.conninfo.make_conninfo("", **{k: v for k, v in given.items() if k not in _SECRET})


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(url))
    except psycopg.Error:  # whose words have the URL in them
        _no_url()


def _no_url() -> NoReturn:
    raise VaultError(
        "vault.url is none that libpq reads; give postgresql://USER@HOST/NAME, its password there, in PGPASSWORD or in "
        "~/.pgpass"
    ) from None


_WAY_OUT = (
    "check vault.url, the password in it, in PGPASSWORD or in ~/.pgpass, and that the server runs and has this "
    "database; `createdb` makes one"
)
