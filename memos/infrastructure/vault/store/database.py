"""One SQLite file, and one of vectors attached to it: their tables, their connection, and transactions on them.

Knows what makes a write whole and lasting. Must not know what a cube is, nor what the rows are for.

vectors.db is ten times as large, so that a deletion must not rewrite it. It is never vacuumed: what could tell of a
text lies in pages that are one row's alone, which SQLite clears when they are freed (`READINGS`). After a crash it may
lack what the other has, or have more; then vectors are made anew, or go with the next deletion.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime, timedelta, timezone
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memos.errors import VaultError
from memos.infrastructure.vault.store.group_sync import GroupSync
from memos.infrastructure.vault.store.on_disk import fsync, land
from memos.infrastructure.vault.store.rows import checksum, words
from memos.infrastructure.vault.store.sqlite_file import attach, connect, damaged, module, why
from memos.infrastructure.vault.store.store import Store
from memos.infrastructure.vault.store.writer_lock import WriterLock, lock_of
from memos.plugins.encryption.vault_key import DataKey

log = logging.getLogger("memos")
SCHEMA = (
    "CREATE TABLE versions (id TEXT, version INTEGER, json TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY (id, version))",
    # finds the cubes that refer to a blob
    "CREATE INDEX versions_blob ON versions (json_extract(json, '$.payload.sha256'))",
    """CREATE TABLE heads (id TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL, form TEXT NOT NULL,
       segment TEXT NOT NULL, user_id TEXT NOT NULL, FOREIGN KEY (id, version) REFERENCES versions (id, version))""",
    """CREATE TABLE transitions (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       state TEXT NOT NULL, at TEXT NOT NULL, why TEXT NOT NULL)""",
    "CREATE INDEX transitions_id ON transitions (id)",
    """CREATE TABLE usage (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, recalls INTEGER NOT NULL,
       last TEXT NOT NULL)""",
    # of current versions only; a source cannot be deleted while a row here names it
    """CREATE TABLE sources (derived_id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       source_id TEXT NOT NULL, source_version INTEGER NOT NULL, PRIMARY KEY (derived_id, source_id),
       FOREIGN KEY (source_id, source_version) REFERENCES versions (id, version))""",
    "CREATE INDEX sources_source ON sources (source_id, source_version)",
    """CREATE TABLE vectors (id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, version INTEGER NOT NULL,
       embedder TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (id, embedder))""",
    """CREATE TABLE jobs (id TEXT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL,
       started TEXT NOT NULL, ended TEXT, note TEXT NOT NULL DEFAULT '')""",
    # AUTOINCREMENT remembers the highest n, so that rows cut off at the end are missed
    """CREATE TABLE audit (n INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, caller TEXT NOT NULL,
       action TEXT NOT NULL, target TEXT NOT NULL, allowed INTEGER NOT NULL, why TEXT NOT NULL,
       prev TEXT NOT NULL, hash TEXT NOT NULL)""",
    # a row for each deleted blob, or text (NULL), whose bytes may still lie on disk: a debt that survives a crash
    "CREATE TABLE erasures (n INTEGER PRIMARY KEY AUTOINCREMENT, sha256 TEXT)",
)
# What was read for each row of `vectors`. Of a row that is too long for a page, its page keeps 489 bytes, if the rest
# just fills pages of its own (SQLite's file format, 1.6): `head` is what is kept, and `rest` fills the last page. Where
# SQLite balances pages, it leaves copies of what they keep.
_PAGE, _HEAD = 4096, 512
_PROOF = 80  # bytes of a page of an encrypted file: SQLCipher's IV and HMAC
READINGS = (
    "CREATE TABLE readings (n INTEGER PRIMARY KEY, head BLOB, vector BLOB NOT NULL, tokens BLOB NOT NULL, rest BLOB)",
    "CREATE INDEX readings_n ON readings (n)",  # small, where the table is not
)


def reading(sealed: bool = False) -> str:
    """How a row of `readings` is laid out, to be followed by what is in it and ")"."""
    page = _PAGE - (_PROOF if sealed else 0)
    kept = (page - 12) * 32 // 255 - 23
    return f"""SELECT n, zeroblob({_HEAD}), vector, tokens,
    zeroblob({page - 4} - ({_HEAD} - {kept} + 13 + length(vector) + length(tokens)) % {page - 4}) FROM ("""


# What each later version adds to the one before it; a vault is brought up to date when it is opened.
UPGRADES = (
    # what was measured on a host, by its digest
    ("CREATE TABLE cards (host TEXT PRIMARY KEY, json TEXT NOT NULL, at TEXT NOT NULL)",),
    # the order in which cubes last changed, and when one was last deleted: what an index reads to keep up
    (
        "CREATE TABLE changes (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, n INTEGER NOT NULL)",
        "CREATE INDEX changes_n ON changes (n)",
        "INSERT INTO changes SELECT id, 1 FROM heads",
        "CREATE TABLE clock (n INTEGER NOT NULL, deleted INTEGER NOT NULL)",
        "INSERT INTO clock VALUES (1, 0)",
        *(
            f"""CREATE TRIGGER changes_{event.lower()} AFTER {event} ON heads BEGIN
                UPDATE clock SET n = n + 1;
                DELETE FROM changes WHERE id = new.id;
                INSERT INTO changes SELECT new.id, n FROM clock; END"""
            for event in ("INSERT", "UPDATE")
        ),
        "CREATE TRIGGER changes_delete AFTER DELETE ON heads BEGIN UPDATE clock SET n = n + 1, deleted = n + 1; END",
        # finds a text that is there already
        "CREATE INDEX versions_text ON versions (substr(json_extract(json, '$.payload.text'), 1, 64))",
        "CREATE INDEX heads_segment ON heads (segment)",
        # what else a vector was made of: "id:version id:version"
        "ALTER TABLE vectors ADD COLUMN around TEXT NOT NULL DEFAULT ''",
        "DELETE FROM vectors",  # they are made anew, with those of their tokens
        # of its tokens, [tokens, width] int8
        "ALTER TABLE vectors ADD COLUMN tokens BLOB NOT NULL DEFAULT x''",
        "CREATE INDEX vectors_around ON vectors (around) WHERE around != ''",
    ),
    # how often a job that nobody waits for was begun; NULL for one that somebody does
    ("ALTER TABLE jobs ADD COLUMN tries INTEGER",),
    # the uses of memories one by one, and by whom: what a policy replays, and prediction learns from; of those before,
    # the last of each is known
    (
        """CREATE TABLE uses (n INTEGER PRIMARY KEY AUTOINCREMENT,
           id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, at TEXT NOT NULL, user_id TEXT NOT NULL)""",
        "CREATE INDEX uses_id ON uses (id)",
        """INSERT INTO uses (id, at, user_id) SELECT u.id, u.last, h.user_id FROM usage u JOIN heads h ON h.id = u.id
           WHERE h.form = 'plaintext' ORDER BY u.last""",
    ),
    # the life of cubes: the latest time written down, until when a cube is in force, since when it is as it is
    (
        "ALTER TABLE clock ADD COLUMN at TEXT NOT NULL DEFAULT ''",
        """UPDATE clock SET at = max(ifnull((SELECT max(at) FROM versions), ''),
           ifnull((SELECT max(at) FROM transitions), ''), ifnull((SELECT max(at) FROM audit), ''))""",
        "ALTER TABLE heads ADD COLUMN expires TEXT",
        "ALTER TABLE heads ADD COLUMN since TEXT NOT NULL DEFAULT ''",
        """UPDATE heads SET since = max(
           ifnull((SELECT max(v.at) FROM versions v WHERE v.id = heads.id), ''),
           ifnull((SELECT max(t.at) FROM transitions t WHERE t.id = heads.id), ''))""",
        "CREATE INDEX heads_expires ON heads (expires) WHERE expires IS NOT NULL",
        "CREATE INDEX heads_since ON heads (state, since)",
    ),
    # which versions a namespace was made of at some time; `cubes` is how many, as a deletion takes its rows along
    (
        """CREATE TABLE snapshots (n INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
           at TEXT NOT NULL, cubes INTEGER NOT NULL, UNIQUE (namespace, name))""",
        """CREATE TABLE snapshot_cubes (snapshot INTEGER NOT NULL REFERENCES snapshots (n) ON DELETE CASCADE,
           id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, version INTEGER NOT NULL, state TEXT NOT NULL,
           PRIMARY KEY (snapshot, id)) WITHOUT ROWID""",
        "CREATE INDEX snapshot_cubes_id ON snapshot_cubes (id)",
    ),
    # what statements say, in their current version: finds those that a new one may replace
    (
        """CREATE TABLE facts (id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, user_id TEXT NOT NULL,
           subject TEXT NOT NULL, relation TEXT NOT NULL, object TEXT NOT NULL, mode TEXT NOT NULL)""",
        "CREATE INDEX facts_about ON facts (user_id, subject, relation, mode, object, id)",
        "CREATE INDEX facts_id ON facts (id)",
        """INSERT INTO facts SELECT h.id, h.user_id, casefold(json_extract(f.value, '$.subject')),
           json_extract(f.value, '$.relation'), casefold(json_extract(f.value, '$.object')),
           ifnull(json_extract(f.value, '$.mode'), 'is')
           FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version,
           json_each(v.json, '$.payload.facts') f""",
    ),
    # by what else a memory is found: its words, as a digest, and its tags; how often it was told again, and when; and
    # which memory has replaced it: from when on it is no longer true, and since when that is known
    (
        "ALTER TABLE heads ADD COLUMN words TEXT NOT NULL DEFAULT ''",
        """UPDATE heads SET words = (SELECT words(json_extract(v.json, '$.payload.text')) FROM versions v
           WHERE v.id = heads.id AND v.version = heads.version AND json_extract(v.json, '$.payload.text') != '')
           WHERE form = 'plaintext' AND EXISTS (SELECT 1 FROM versions v WHERE v.id = heads.id
           AND v.version = heads.version AND json_extract(v.json, '$.payload.text') != '')""",
        "CREATE INDEX heads_words ON heads (user_id, words)",
        "DROP INDEX versions_text",
        "ALTER TABLE heads ADD COLUMN tags TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX heads_tags ON heads (user_id) WHERE tags != ''",
        "ALTER TABLE heads ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE repeats (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
           said TEXT, at TEXT NOT NULL, origin TEXT NOT NULL)""",
        "CREATE INDEX repeats_id ON repeats (id)",
        """CREATE TABLE superseded (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
           by TEXT NOT NULL, since TEXT NOT NULL, at TEXT NOT NULL, undone TEXT)""",
        "CREATE INDEX superseded_id ON superseded (id)",
        "CREATE INDEX heads_made ON heads (form, state) WHERE form != 'plaintext'",
    ),
    # what rows hold that are written once, as a checksum: finds a bit that has flipped
    (
        "ALTER TABLE versions ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "UPDATE versions SET digest = checksum(id, version, json, at)",
        "ALTER TABLE transitions ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "UPDATE transitions SET digest = checksum(id, state, at, why)",
    ),
    # what came in packs and from where, which packs are installed, and whose key stands for which name
    (
        """CREATE TABLE arrivals (source TEXT NOT NULL, user_id TEXT NOT NULL, original TEXT NOT NULL,
           id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, here INTEGER NOT NULL, there INTEGER NOT NULL,
           digest TEXT NOT NULL, own INTEGER NOT NULL, origin TEXT NOT NULL,
           PRIMARY KEY (source, user_id, original))""",
        "CREATE INDEX arrivals_id ON arrivals (id)",
        """CREATE TABLE packs (user_id TEXT NOT NULL, pack TEXT NOT NULL, registry TEXT NOT NULL,
           subscribed INTEGER NOT NULL, at TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (user_id, pack))""",
        "CREATE TABLE publisher_keys (name TEXT PRIMARY KEY, public_key TEXT NOT NULL, at TEXT NOT NULL)",
    ),
    # relations: who has which right to a cube, or to all in a namespace (where `cube` is NULL), and who is in a group;
    # `to_group`: 1 where user and agent are a group's owner and name. Readers that stood in cubes are among them
    (
        """CREATE TABLE grants (n INTEGER PRIMARY KEY AUTOINCREMENT, cube TEXT REFERENCES heads (id) ON DELETE CASCADE,
           over_user TEXT NOT NULL, over_agent TEXT NOT NULL, over_session TEXT NOT NULL, relation TEXT NOT NULL,
           to_group INTEGER NOT NULL, to_user TEXT NOT NULL, to_agent TEXT NOT NULL, to_session TEXT NOT NULL,
           purpose TEXT NOT NULL, until TEXT, by TEXT NOT NULL, at TEXT NOT NULL)""",
        "CREATE INDEX grants_cube ON grants (cube)",
        "CREATE INDEX grants_to ON grants (to_group, to_user, over_user)",
        "CREATE INDEX grants_until ON grants (until) WHERE until IS NOT NULL",
        """CREATE TABLE group_members (owner TEXT NOT NULL, name TEXT NOT NULL, is_group INTEGER NOT NULL,
           user_id TEXT NOT NULL, agent_id TEXT NOT NULL, session_id TEXT NOT NULL,
           PRIMARY KEY (owner, name, is_group, user_id, agent_id, session_id))""",
        "CREATE INDEX group_members_of ON group_members (is_group, user_id)",
        "CREATE TABLE rights_clock (n INTEGER NOT NULL)",
        "INSERT INTO rights_clock VALUES (1)",
        """INSERT INTO grants (cube, over_user, over_agent, over_session, relation, to_group, to_user, to_agent,
           to_session, purpose, until, by, at)
           SELECT h.id, '', '', '', 'reader', 0, r.value, '', '', '', NULL, json_extract(v.json, '$.rights.owner'), v.at
           FROM heads h JOIN versions v ON v.id = h.id AND v.version = h.version,
           json_each(v.json, '$.rights.readers') r""",
        """UPDATE versions SET json = json_set(json, '$.rights.readers', json('[]')),
           digest = checksum(id, version, json_set(json, '$.rights.readers', json('[]')), at)
           WHERE json_array_length(json, '$.rights.readers') > 0""",
        """CREATE TABLE credentials (id TEXT PRIMARY KEY, salt TEXT NOT NULL, digest TEXT NOT NULL,
           user_id TEXT NOT NULL, agent_id TEXT NOT NULL, session_id TEXT NOT NULL, purposes TEXT NOT NULL,
           at TEXT NOT NULL, until TEXT, revoked TEXT)""",
    ),
    # governance: what is signed of the audit log, and which rows of it name nobody any more; what is in quarantine, and
    # what came from which origin lately; legal holds; who was forgotten
    (
        "ALTER TABLE audit ADD COLUMN salt TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE audit ADD COLUMN forgetting INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE checkpoints (n INTEGER PRIMARY KEY, hash TEXT NOT NULL, at TEXT NOT NULL, key TEXT NOT NULL,
           prev TEXT NOT NULL, signature TEXT NOT NULL)""",
        """CREATE TABLE forgettings (k INTEGER PRIMARY KEY, digest TEXT NOT NULL, at TEXT NOT NULL, key TEXT NOT NULL,
           signature TEXT NOT NULL)""",
        """CREATE TABLE quarantine (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, why TEXT NOT NULL,
           at TEXT NOT NULL)""",
        "CREATE TABLE newcomers (user_id TEXT NOT NULL, origin TEXT NOT NULL, at TEXT NOT NULL)",
        "CREATE INDEX newcomers_of ON newcomers (user_id, origin, at)",
        """CREATE TABLE holds (id TEXT PRIMARY KEY REFERENCES heads (id), holder TEXT NOT NULL, why TEXT NOT NULL,
           at TEXT NOT NULL)""",
        "CREATE TABLE forgotten (digest TEXT PRIMARY KEY, salt TEXT NOT NULL, what TEXT NOT NULL, at TEXT NOT NULL)",
    ),
    # what was let out of quarantine: a digest of its words and of the rules that they were judged by
    (
        """CREATE TABLE released (id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, judged TEXT NOT NULL,
           PRIMARY KEY (id, judged)) WITHOUT ROWID""",
    ),
    # how often a cube was not whose it was, beside what is granted: decisions that rest on nothing else stay
    ("ALTER TABLE rights_clock ADD COLUMN moved INTEGER NOT NULL DEFAULT 0",),
    # the file that holds what an index was: what it means, and the last change that is in it
    (
        """CREATE TABLE indexes (name TEXT NOT NULL, layout TEXT NOT NULL, embedder TEXT NOT NULL,
           change INTEGER NOT NULL, digest TEXT NOT NULL)""",
        # vectors move to their own file; n is never used again, so that no row there is taken for another's
        "ALTER TABLE vectors RENAME TO old_vectors",
        "DROP INDEX vectors_around",
        """CREATE TABLE vectors (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL REFERENCES heads (id)
           ON DELETE CASCADE, version INTEGER NOT NULL, embedder TEXT NOT NULL, around TEXT NOT NULL,
           digest TEXT NOT NULL, UNIQUE (id, embedder))""",
        "CREATE INDEX vectors_around ON vectors (around) WHERE around != ''",
        """INSERT INTO vectors (id, version, embedder, around, digest)
           SELECT id, version, embedder, around, checksum(vector, tokens) FROM old_vectors""",
        f"""INSERT OR REPLACE INTO readings {reading()}
            SELECT v.n, o.vector, o.tokens FROM old_vectors o JOIN vectors v USING (id, embedder))""",
        "DROP TABLE old_vectors",
    ),
    # how much a memory has helped
    ("ALTER TABLE usage ADD COLUMN utility REAL NOT NULL DEFAULT 0",),
    # what messages have done, and the calls that take it back
    (
        """CREATE TABLE pipelines (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, user_id TEXT NOT NULL,
           at TEXT NOT NULL, undo TEXT NOT NULL)""",
        "CREATE INDEX pipelines_of ON pipelines (user_id, n)",
    ),
)
SCHEMA_VERSION = 1 + len(UPGRADES)
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")  # of either file
# recursive: a row that is replaced goes as one that is deleted
PRAGMAS_OF_ALL = ("foreign_keys = ON", "recursive_triggers = ON")
IN = "IN (SELECT value FROM json_each(?))"  # any number of values in one parameter
LATEST = "(SELECT CASE WHEN at > ? THEN at ELSE ? END FROM clock)"  # of two equal values, `told`, and what is written
WAIT_S = 10.0  # for another process's write
_READERS = 8  # connections that are kept for reading
_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TOLD_S = 1.0  # by how much a clock must go back to be told of; less is its being set by a time server


class Times:
    """The time as a store tells it: never before one that was told or written down, wherever that was."""

    def __init__(self) -> None:
        self.stamped: datetime | None = None  # the latest time that this transaction has stamped
        self._warned, self._latest = False, clock()  # of the clock; the latest time that was told
        self._telling = threading.Lock()

    def now(self, store: Store) -> datetime:
        said = clock()
        latest = self.stamped if store.in_transaction else None
        if latest is None:
            [(kept,)] = store.rows("SELECT at FROM clock")
            latest = moment(kept) if kept else _NEVER
        with self._telling:
            self._latest = max(self._latest, said, latest + timedelta(microseconds=1))
            if (self._latest - said).total_seconds() > _TOLD_S and not self._warned:
                self._warned = True
                log.warning(
                    "the clock says %s, and it was %s before: time goes on from there, and nothing ages until the "
                    "clock is past it; set the clock of this machine",
                    *(said.isoformat(), self._latest.isoformat()),
                )
            return self._latest

    def told(self) -> datetime:
        with self._telling:
            return max(self._latest, clock())

    def stamp(self, store: Store) -> str:
        """Within a transaction, which writes it down at its end."""
        self.stamped = self.now(store)
        return self.stamped.isoformat()


class Database:
    """Thread safe: one connection writes, in turn with those of other processes, and others read without waiting.

    What a transaction wrote is read in its own thread at once; elsewhere after it, which may be just before it is on
    disk. A transaction that has returned is on disk: the log of SQLite keeps their order, and one sync is shared by all
    who wait for one.
    """

    def __init__(self, file: Path, key: DataKey | None = None) -> None:
        """Open the file, made if absent. key: of an encrypted one. Raises VaultError."""
        self._file, self._key, self._lock = file, key, lock_of(file)
        self._db = _connect(file, key, self._lock)
        self._damaged = damaged(key)
        self.reading = reading(key is not None)  # how a row of `readings` is laid out
        self._idle: list[Any] = []  # connections that could read
        self._reading, self._pool = 0, threading.Lock()  # how many do
        self._unread = threading.Condition(self._pool)
        self._closed = False
        try:
            self._db.execute("SELECT n FROM clock").fetchone()  # makes the log, where there is none
            self._sync = GroupSync(file.with_name(f"{file.name}-wal"))
            fsync(file.parent)  # the names of new files
        except OSError as error:
            self._db.close()
            raise VaultError(
                f"{file} cannot be written ({error.strerror}); set vault.path to another folder"
            ) from error
        self._times = Times()
        self._torn = False  # a part of this transaction has failed and was not undone

    def close(self) -> None:
        with self._lock.among_threads(-1):
            if self._closed:
                return
            with self._unread:
                self._closed = True
                self._unread.wait_for(lambda: self._reading == 0)  # the last connection clears the logs
            while self._idle:
                self._idle.pop().close()
            self._sync.close()
            self._db.close()

    @property
    def in_transaction(self) -> bool:
        """In this thread."""
        return self._lock.mine and self._db.in_transaction

    def writing(self) -> AbstractContextManager[None]:
        """Nobody else writes meanwhile, in this process or another. Raises VaultError after waiting for too long."""
        return self._lock.held(WAIT_S)

    @contextmanager
    def transaction(self, lasting: bool = True) -> Iterator[None]:
        """Several writes land together or not at all; a nested one that raises undoes only its own part.

        lasting: False for what nobody is told of: it is on disk with the next lasting transaction, and a loss of power
        before that takes it along, whole.
        """
        if self.in_transaction:
            torn = self._torn
            try:
                with self._block("SAVEPOINT block", "RELEASE block", "ROLLBACK TO block", "RELEASE block"):
                    yield
                    if self._torn and not torn:
                        raise self._half()
            except BaseException:
                self._torn = torn  # what was torn in here is undone
                raise
            return
        with self.writing():
            self._require_sound()
            with self._block("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
                self._times.stamped, self._torn = None, False
                yield
                if self._torn:
                    raise self._half()
                if self._times.stamped:
                    self.write("UPDATE clock SET at = ?", self._times.stamped.isoformat())
            number = self._sync.wrote()
        if lasting:
            try:
                self._sync.wait(number)
            except OSError as error:
                raise self._unsound(error) from error

    @contextmanager
    def indivisible(self) -> Iterator[None]:
        """Within a transaction: writes of which none may be missing. What fails in here takes the whole transaction
        along, which is cheaper than a nested one: that copies each page that it changes."""
        try:
            yield
        except BaseException as error:
            self._torn = True
            if isinstance(error, self._damaged):
                raise self._not_written(error) from error
            raise

    @contextmanager
    def _block(self, begin: str, end: str, *undo: str) -> Iterator[None]:
        try:
            self._db.execute(begin)
            try:
                yield
                self._db.execute(end)
            except BaseException:  # whatever it was, even Ctrl-C, nothing half-written stays
                if self._db.in_transaction:  # on a full disk SQLite has already rolled back
                    for statement in undo:
                        self._db.execute(statement)
                raise
        except self._damaged as error:
            raise self._not_written(error) from error

    def _half(self) -> VaultError:
        return VaultError(f"{self._file} was not written: a part of this change had failed before")

    def _not_written(self, error: BaseException) -> VaultError:
        return VaultError(
            f"{self._file} was not written ({why(error)}); nothing of this change is kept, "
            "make sure that the disk has room and no other process holds the vault, and try again"
        )

    def _require_sound(self) -> None:
        try:
            self._sync.require_sound()
        except OSError as error:
            raise self._unsound(error) from error

    def _unsound(self, error: OSError) -> VaultError:
        return VaultError(
            f"{self._file} was written, and the disk did not confirm it ({error.strerror}): the latest changes may be "
            "lost with the power, what was acknowledged before is kept; nothing more is written here, check the disk, "
            "and open the vault again"
        )

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            if self._lock.mine:
                return self._db.execute(sql, values).fetchall()
            db = self._taken()
            try:
                return db.execute(sql, values).fetchall()
            finally:
                self._give_back(db)
        except self._damaged as error:
            raise VaultError(
                f"{self._file} cannot be read ({why(error)}); if it is damaged, bring back a copy of the vault folder"
            ) from error

    def _taken(self) -> Any:
        """A connection that reads, for the caller alone until it is given back."""
        with self._pool:
            if self._closed:
                return self._db  # whose error says so
            self._reading += 1
            if self._idle:
                return self._idle.pop()
        try:
            return _connect_reader(self._file, self._key)
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, db: Any) -> None:
        with self._pool:
            if db is self._db:
                return
            self._reading -= 1
            if db and len(self._idle) < _READERS:
                self._idle.append(db)
            elif db:
                db.close()
            if self._closed:  # somebody waits for the last of them
                self._unread.notify_all()

    def now(self) -> datetime:
        """The time: never before one that was told here, and after all that was written in any process."""
        return self._times.now(self)

    def told(self) -> datetime:
        return self._times.told()

    def stamp(self) -> str:
        """Within a transaction: the time as it is kept, after all that was kept before it."""
        return self._times.stamp(self)

    def floats(self, vector: npt.NDArray[np.float32]) -> bytes:
        return vector.astype("<f4").tobytes()

    def alone(self, leaving: bool = False) -> AbstractContextManager[bool]:
        """As the folder's lock says: it is on no other machine."""
        return nullcontext(True)

    def sizes(self) -> dict[str, int]:
        return {file.name: _size(file) for file in (self._file, _side(self._file))}

    def journals(self) -> dict[str, int]:
        logs = (file.with_name(f"{file.name}-wal") for file in (self._file, _side(self._file)))
        return {file.name: _size(file) for file in logs}

    def write(self, sql: str, *values: object) -> int:
        """Within a transaction; the number of rows written."""
        return self._db.execute(sql, values).rowcount

    def write_many(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Within a transaction."""
        self._db.executemany(sql, rows)

    def shrink(self) -> None:
        """Of each connection the pages that it holds, of the one that writes up to 32 MiB."""
        with self._lock.among_threads(-1), self._pool:
            for db in () if self._closed else (self._db, *self._idle):
                db.execute("PRAGMA shrink_memory")

    def vacuum(self) -> bool:
        """Leave nothing of a deleted text in vault.db; False while another process is in the way.

        secure_delete alone is not enough: where SQLite balances its pages it leaves copies of rows in their gaps
        (measured: 2 of 7,500 deleted facts could still be read, from their index), so a deleted text costs a VACUUM,
        but not of the vectors.
        """
        for copy in self._file.parent.glob(f"{self._file.stem}.schema-*"):
            copy.unlink(missing_ok=True)
        return self._at_once("VACUUM main") is not None

    def clear_logs(self) -> bool:
        """Leave nothing in the write-ahead logs; False while another process is in the way."""
        done = self._at_once("PRAGMA wal_checkpoint(TRUNCATE)")
        return done is not None and not done[0][0]

    def _at_once(self, sql: str) -> list[tuple[Any, ...]] | None:
        """What this gives; None where it cannot be done. Who reads for long, as a backup does, is not waited for."""
        try:
            self._db.execute("PRAGMA busy_timeout = 0")
            found: list[tuple[Any, ...]] = self._db.execute(sql).fetchall()
            return found
        except self._damaged as error:
            log.debug("%s: %s failed (%s)", self._file, sql, why(error))
            return None
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {WAIT_S * 1e3:.0f}")

    def compact(self) -> None:
        """Give the space of what was deleted back to the disk. Raises VaultError if somebody is in the way."""
        with self.writing():
            try:
                for name in ("main", "side"):
                    self._db.execute(f"VACUUM {name}")
                (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except self._damaged as error:
                raise VaultError(
                    f"{self._file} was not compacted ({why(error)}); it needs as much free disk as it is large, and "
                    "nobody else who writes: close other processes, and try again"
                ) from error
        if busy:
            raise VaultError(f"{self._file} is read by another process, so its log stays; close that, and try again")


def moment(at: object) -> datetime:
    """A time as it was written down. Raises VaultError for what is none."""
    try:
        return datetime.fromisoformat(at)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise odd_row(at) from None


def odd_row(value: object) -> VaultError:
    return VaultError(
        f"vault.db holds {value!r:.80} where memos writes nothing of the kind: it was damaged, or changed by another "
        f"program; bring back a copy of the vault folder"
    )


def clock() -> datetime:
    """What the machine's clock says."""
    return datetime.now(timezone.utc)


def require_schema(file: Path | str, version: int) -> None:
    """Raises VaultError for a newer one than this memos knows."""
    if version > SCHEMA_VERSION:
        raise VaultError(f"{file} has schema {version}, this memos reads up to {SCHEMA_VERSION}; upgrade memos")


def _connect(file: Path, key: DataKey | None, lock: WriterLock) -> Any:
    """The connection that writes."""
    try:
        db = _open(file, key)
        try:
            _prepare(db, file, key, lock)
        except BaseException:
            db.close()
            raise
    except module(key).OperationalError as error:
        raise VaultError(
            f"{file} cannot be opened ({error}); it is as it was, make sure that the disk has room, the folder can be "
            "written to and no other process holds the vault, and try again"
        ) from error
    except damaged(key) as error:
        raise VaultError(
            f"{file} is not a vault ({why(error)}); move it away, or set vault.path to another folder"
        ) from error
    return db


def _connect_reader(file: Path, key: DataKey | None) -> Any:
    db = _open(file, key)
    try:
        db.execute(*attach("side", _side(file), key))
        db.execute("PRAGMA query_only = ON")
    except BaseException:
        db.close()
        raise
    return db


def _open(file: Path | str, key: DataKey | None) -> Any:
    db = connect(file, key, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    db.create_function("casefold", 1, str.casefold, deterministic=True)
    db.create_function("words", 1, words, deterministic=True)
    db.create_function("checksum", -1, checksum, deterministic=True)
    return db


def _side(file: Path) -> Path:
    return file.with_name("vectors.db")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


@cache
def schema() -> frozenset[tuple[str, str]]:
    """(name, statement) of all that vault.db is made of, in an empty one."""
    return frozenset(blank()[0])


@cache
def blank() -> tuple[tuple[tuple[str, str], ...], dict[str, list[tuple[Any, ...]]]]:
    """(name, statement) of all that an empty vault.db is made of, in order, and the rows that it begins with."""
    with closing(_open(":memory:", None)) as db:
        db.execute("ATTACH ':memory:' AS side")
        for statement in chain(READINGS, SCHEMA, *UPGRADES):
            side = statement in READINGS
            db.execute(re.sub("(TABLE|INDEX) ", r"\1 side.", statement, count=1) if side else statement)
        made = db.execute("SELECT name, sql, type FROM main.sqlite_master WHERE sql IS NOT NULL").fetchall()
        tables = [name for name, _, kind in made if kind == "table" and not name.startswith("sqlite_")]
        rows = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        return tuple((name, sql) for name, sql, _ in made), {name: found for name, found in rows.items() if found}


def _prepare(db: Any, file: Path, key: DataKey | None, lock: WriterLock) -> None:
    """Make the tables of a new vault; refuse what is no vault before anything is written to it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    require_schema(file, version)
    if version == 0 and tables:
        raise VaultError(f"{file} is the database of another program; set vault.path to another folder")
    _attach(db, _side(file), key, lock)
    for pragma in (*(f"{of}.{pragma}" for of in ("main", "side") for pragma in PRAGMAS), *PRAGMAS_OF_ALL):
        db.execute(f"PRAGMA {pragma}").fetchall()
    if version < SCHEMA_VERSION:
        with lock.held(WAIT_S):
            _upgrade(db, file, key)
    db.execute(
        """CREATE TEMP TRIGGER vectors_delete AFTER DELETE ON main.vectors BEGIN
           DELETE FROM readings WHERE n = old.n; END"""
    )
    db.execute("SELECT 1 FROM main.sqlite_master").fetchone()  # the log is there from the first read on
    db.execute("PRAGMA main.cache_size = -32768")  # KiB: an index of digests is written all over
    db.execute("SELECT 1 FROM clock").fetchone()  # a file that had no log has one from its first reading
    db.execute("PRAGMA main.synchronous = NORMAL")  # from here on, GroupSync sees to it that commits are on disk


def _upgrade(db: Any, file: Path, key: DataKey | None) -> None:
    """All or nothing. A copy of what was there is kept until a text is deleted, which would lie in it."""
    db.execute("BEGIN IMMEDIATE")
    (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have been here first
    copies = []
    try:
        if 0 < version < SCHEMA_VERSION:
            copies.append(_back_up(file, version, key))
        for statement in chain.from_iterable((SCHEMA, *UPGRADES)[version:]):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        for copy in copies:
            copy.unlink(missing_ok=True)
        if isinstance(error, (*damaged(key), OSError)):
            raise VaultError(
                f"{file} was not brought from schema {version} to {SCHEMA_VERSION} ({why(error)}); it is as it was, "
                "make sure that the disk has room for a copy and the folder can be written to, and open it again"
            ) from error
        raise


def _back_up(file: Path, version: int, key: DataKey | None) -> Path:
    """A copy of the file beside it, as it was committed last; on disk when this returns. It has the file's key."""
    kept = file.with_name(f"{file.stem}.schema-{version}.db")
    part = kept.with_suffix(".part")
    try:
        part.unlink(missing_ok=True)
        with closing(connect(file, key)) as source, closing(connect(part, key, file.name)) as copy:
            source.backup(copy)
        land(part, kept)
    finally:
        part.unlink(missing_ok=True)
    return kept


def _attach(db: Any, file: Path, key: DataKey | None, lock: WriterLock) -> None:
    try:
        db.execute(*attach("side", file, key))
        db.execute(f"PRAGMA side.page_size = {_PAGE}")
        if not db.execute("SELECT 1 FROM side.sqlite_master").fetchone():
            with lock.held(WAIT_S):
                db.execute("BEGIN IMMEDIATE")
                for statement in READINGS:
                    db.execute(re.sub("(TABLE|INDEX) ", r"\1 IF NOT EXISTS side.", statement, count=1))
                db.execute("COMMIT")
    except damaged(key) as error:
        raise VaultError(
            f"{file} cannot be used ({why(error)}); close other processes, or remove it: what it holds is made anew"
        ) from error
