"""The tables of a vault, in SQLite's dialect, and the step from the previous schema to this one.

vault.db holds TABLES, and vectors.db READINGS. Knows names and columns; must not know a connection.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from memos.errors import VaultError

SCHEMA_VERSION = 21
_EXTENSIONS = """CREATE TABLE extension_tables (name TEXT PRIMARY KEY, statements TEXT NOT NULL, users TEXT NOT NULL,
       times TEXT NOT NULL)"""
TABLES = (
    # cubes: every version, the head of each, and what follows from the current version
    """CREATE TABLE versions (id TEXT, version INTEGER, json TEXT NOT NULL, at TEXT NOT NULL,
       digest TEXT NOT NULL DEFAULT '', PRIMARY KEY (id, version))""",
    # finds the cubes that refer to a blob
    "CREATE INDEX versions_blob ON versions (json_extract(json, '$.payload.sha256'))",
    # words: a digest of a text's words; expires: until when it is in force; since: when it came to be as it is
    """CREATE TABLE heads (id TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL, form TEXT NOT NULL,
       segment TEXT NOT NULL, user_id TEXT NOT NULL, expires TEXT, since TEXT NOT NULL DEFAULT '',
       words TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '', repeats INTEGER NOT NULL DEFAULT 0,
       FOREIGN KEY (id, version) REFERENCES versions (id, version))""",
    "CREATE INDEX heads_segment ON heads (segment)",
    "CREATE INDEX heads_expires ON heads (expires) WHERE expires IS NOT NULL",
    "CREATE INDEX heads_since ON heads (state, since)",
    "CREATE INDEX heads_words ON heads (user_id, words)",
    "CREATE INDEX heads_tags ON heads (user_id) WHERE tags != ''",
    "CREATE INDEX heads_made ON heads (form, state) WHERE form != 'plaintext'",
    """CREATE TABLE transitions (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       state TEXT NOT NULL, at TEXT NOT NULL, why TEXT NOT NULL, digest TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX transitions_id ON transitions (id)",
    # of current versions only; a source cannot be deleted while a row here names it
    """CREATE TABLE sources (derived_id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       source_id TEXT NOT NULL, source_version INTEGER NOT NULL, PRIMARY KEY (derived_id, source_id),
       FOREIGN KEY (source_id, source_version) REFERENCES versions (id, version))""",
    "CREATE INDEX sources_source ON sources (source_id, source_version)",
    # what statements say, in their current version: finds those that a new one may replace
    """CREATE TABLE facts (id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, user_id TEXT NOT NULL,
       subject TEXT NOT NULL, relation TEXT NOT NULL, object TEXT NOT NULL, mode TEXT NOT NULL)""",
    "CREATE INDEX facts_about ON facts (user_id, subject, relation, mode, object, id)",
    "CREATE INDEX facts_id ON facts (id)",
    # how often a memory was told again, and which memory has replaced it: from when on it is no longer true, and since
    # when that is known
    """CREATE TABLE repeats (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       said TEXT, at TEXT NOT NULL, origin TEXT NOT NULL)""",
    "CREATE INDEX repeats_id ON repeats (id)",
    """CREATE TABLE superseded (n INTEGER PRIMARY KEY, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE,
       by TEXT NOT NULL, since TEXT NOT NULL, at TEXT NOT NULL, undone TEXT)""",
    "CREATE INDEX superseded_id ON superseded (id)",
    "CREATE INDEX superseded_by ON superseded (by)",
    # use: counts of each cube, and the uses of memories one by one, from which prediction learns
    """CREATE TABLE usage (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, recalls INTEGER NOT NULL,
       last TEXT NOT NULL, utility REAL NOT NULL DEFAULT 0)""",
    """CREATE TABLE uses (n INTEGER PRIMARY KEY AUTOINCREMENT,
       id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, at TEXT NOT NULL, user_id TEXT NOT NULL)""",
    "CREATE INDEX uses_id ON uses (id)",
    # the order in which cubes last changed, when one was last deleted, and the latest time that was written down
    "CREATE TABLE changes (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, n INTEGER NOT NULL)",
    "CREATE INDEX changes_n ON changes (n)",
    "CREATE TABLE clock (n INTEGER NOT NULL, deleted INTEGER NOT NULL, at TEXT NOT NULL DEFAULT '')",
    "INSERT INTO clock VALUES (1, 0, '')",
    *(
        f"""CREATE TRIGGER changes_{event.lower()} AFTER {event} ON heads BEGIN
            UPDATE clock SET n = n + 1;
            DELETE FROM changes WHERE id = new.id;
            INSERT INTO changes SELECT new.id, n FROM clock; END"""
        for event in ("INSERT", "UPDATE")
    ),
    "CREATE TRIGGER changes_delete AFTER DELETE ON heads BEGIN UPDATE clock SET n = n + 1, deleted = n + 1; END",
    # a row for each deleted blob, or text (NULL), whose bytes may still lie on disk: a debt that survives a crash
    "CREATE TABLE erasures (n INTEGER PRIMARY KEY AUTOINCREMENT, sha256 TEXT)",
    # which row of READINGS was read in which cube, and what else it was made of: "id:version id:version"
    """CREATE TABLE vectors (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL REFERENCES heads (id)
       ON DELETE CASCADE, version INTEGER NOT NULL, embedder TEXT NOT NULL, around TEXT NOT NULL,
       digest TEXT NOT NULL, UNIQUE (id, embedder))""",
    "CREATE INDEX vectors_around ON vectors (around) WHERE around != ''",
    # the file that holds what an index was: what it means, and the last change that is in it
    """CREATE TABLE indexes (name TEXT NOT NULL, layout TEXT NOT NULL, embedder TEXT NOT NULL,
       change INTEGER NOT NULL, digest TEXT NOT NULL)""",
    # tries: how often a job that nobody waits for was begun; NULL for one that somebody does. holder: a name of its own
    # for each time that a job is begun; until: when its lease ends, in seconds of the database's clock
    """CREATE TABLE jobs (id TEXT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL,
       started TEXT NOT NULL, ended TEXT, note TEXT NOT NULL DEFAULT '', tries INTEGER,
       priority INTEGER NOT NULL DEFAULT 0, holder TEXT, until REAL)""",
    # what was measured on a host, by its digest
    "CREATE TABLE cards (host TEXT PRIMARY KEY, json TEXT NOT NULL, at TEXT NOT NULL)",
    # which versions a namespace was made of at some time; `cubes` is how many, as a deletion takes its rows along
    """CREATE TABLE snapshots (n INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
       at TEXT NOT NULL, cubes INTEGER NOT NULL, UNIQUE (namespace, name))""",
    """CREATE TABLE snapshot_cubes (snapshot INTEGER NOT NULL REFERENCES snapshots (n) ON DELETE CASCADE,
       id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, version INTEGER NOT NULL, state TEXT NOT NULL,
       PRIMARY KEY (snapshot, id)) WITHOUT ROWID""",
    "CREATE INDEX snapshot_cubes_id ON snapshot_cubes (id)",
    # relations: who has which right to a cube, or to all in a namespace (where `cube` is NULL), and who is in a group;
    # `to_group`: 1 where user and agent are a group's owner and name
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
    # n: how often rights have changed; moved: how often a cube was not whose it was, beside what is granted
    "CREATE TABLE rights_clock (n INTEGER NOT NULL, moved INTEGER NOT NULL DEFAULT 0)",
    "INSERT INTO rights_clock VALUES (1, 0)",
    """CREATE TABLE credentials (id TEXT PRIMARY KEY, salt TEXT NOT NULL, digest TEXT NOT NULL,
       user_id TEXT NOT NULL, agent_id TEXT NOT NULL, session_id TEXT NOT NULL, purposes TEXT NOT NULL,
       at TEXT NOT NULL, until TEXT, revoked TEXT)""",
    # decisions; AUTOINCREMENT remembers the highest n, so that rows cut off at the end are missed. What is signed of
    # them, and which name nobody any more
    """CREATE TABLE audit (n INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, caller TEXT NOT NULL,
       action TEXT NOT NULL, target TEXT NOT NULL, allowed INTEGER NOT NULL, why TEXT NOT NULL,
       prev TEXT NOT NULL, hash TEXT NOT NULL,
       salt TEXT NOT NULL DEFAULT '', forgetting INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE checkpoints (n INTEGER PRIMARY KEY, hash TEXT NOT NULL, at TEXT NOT NULL, key TEXT NOT NULL,
       prev TEXT NOT NULL, signature TEXT NOT NULL)""",
    """CREATE TABLE forgettings (k INTEGER PRIMARY KEY, digest TEXT NOT NULL, at TEXT NOT NULL, key TEXT NOT NULL,
       signature TEXT NOT NULL)""",
    # what is in quarantine, what was let out of it (a digest of its words and of the rules that they were judged by),
    # and what came from which origin lately
    """CREATE TABLE quarantine (id TEXT PRIMARY KEY REFERENCES heads (id) ON DELETE CASCADE, why TEXT NOT NULL,
       at TEXT NOT NULL)""",
    """CREATE TABLE released (id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, judged TEXT NOT NULL,
       PRIMARY KEY (id, judged)) WITHOUT ROWID""",
    "CREATE TABLE newcomers (user_id TEXT NOT NULL, origin TEXT NOT NULL, at TEXT NOT NULL)",
    "CREATE INDEX newcomers_of ON newcomers (user_id, origin, at)",
    # legal holds, and who was forgotten
    """CREATE TABLE holds (id TEXT PRIMARY KEY REFERENCES heads (id), holder TEXT NOT NULL, why TEXT NOT NULL,
       at TEXT NOT NULL)""",
    "CREATE TABLE forgotten (digest TEXT PRIMARY KEY, salt TEXT NOT NULL, what TEXT NOT NULL, at TEXT NOT NULL)",
    # what messages have done, and the calls that take it back
    """CREATE TABLE pipelines (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, user_id TEXT NOT NULL,
       at TEXT NOT NULL, undo TEXT NOT NULL)""",
    "CREATE INDEX pipelines_of ON pipelines (user_id, n)",
    # tables that plug-ins have brought: see extension_tables.py
    _EXTENSIONS,
)
# What leads from the version that is the key to the next. Up to 18, the tables of packs were the core's.
UPGRADES: dict[int, tuple[str, ...]] = {
    18: (
        _EXTENSIONS,
        """INSERT INTO extension_tables VALUES ('arrivals', '["CREATE TABLE arrivals (source TEXT NOT NULL, user_id TEXT NOT NULL, original TEXT NOT NULL, id TEXT NOT NULL REFERENCES heads (id) ON DELETE CASCADE, here INTEGER NOT NULL, there INTEGER NOT NULL, digest TEXT NOT NULL, own INTEGER NOT NULL, origin TEXT NOT NULL, PRIMARY KEY (source, user_id, original))", "CREATE INDEX arrivals_id ON arrivals (id)"]', '["user_id"]', '[]')""",  # noqa: E501
        """INSERT INTO extension_tables VALUES ('packs', '["CREATE TABLE packs (user_id TEXT NOT NULL, pack TEXT NOT NULL, registry TEXT NOT NULL, subscribed INTEGER NOT NULL, at TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (user_id, pack))"]', '["user_id"]', '["at"]')""",  # noqa: E501
        """INSERT INTO extension_tables VALUES ('publisher_keys', '["CREATE TABLE publisher_keys (name TEXT PRIMARY KEY, public_key TEXT NOT NULL, at TEXT NOT NULL)"]', '[]', '["at"]')""",  # noqa: E501
    ),
    19: (
        "ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN holder TEXT",
        "ALTER TABLE jobs ADD COLUMN until REAL",
    ),
    20: ("CREATE INDEX superseded_by ON superseded (by)",),
}
OLDEST_VERSION = min(UPGRADES, default=SCHEMA_VERSION)  # that can be brought up to date

# What was read for each row of `vectors`. Of a row that is too long for a page, its page keeps 489 bytes, if the rest
# just fills pages of its own (SQLite's file format, 1.6): `head` is what is kept, and `rest` fills the last page. Where
# SQLite balances pages, it leaves copies of what they keep.
PAGE_BYTES, _HEAD_BYTES = 4096, 512
READINGS = (
    "CREATE TABLE readings (n INTEGER PRIMARY KEY, head BLOB, vector BLOB NOT NULL, tokens BLOB NOT NULL, rest BLOB)",
    "CREATE INDEX readings_n ON readings (n)",  # small, where the table is not
)


def reading(reserved_bytes: int = 0) -> str:
    """How a row of `readings` is laid out, to be followed by what is in it and ")". reserved_bytes: of each page."""
    page = PAGE_BYTES - reserved_bytes
    local = (page - 12) * 32 // 255 - 23
    return f"""SELECT n, zeroblob({_HEAD_BYTES}), vector, tokens,
    zeroblob({page - 4} - ({_HEAD_BYTES} - {local} + 13 + length(vector) + length(tokens)) % {page - 4}) FROM ("""


def in_side_file(statement: str) -> str:
    """A statement that makes a table or an index, for the attached file, which is `side`."""
    return re.sub("(TABLE|INDEX) ", r"\1 IF NOT EXISTS side.", statement, count=1)


def require_known(file: Path | str, version: int) -> None:
    """Raises VaultError for a newer schema than this memos knows, or one that is too old to be brought up to date."""
    if version > SCHEMA_VERSION:
        raise VaultError(f"{file} has schema {version}, this memos reads up to {SCHEMA_VERSION}; upgrade memos")
    if version < OLDEST_VERSION:
        raise VaultError(
            f"{file} has schema {version}, which is older than this memos can bring up to date ({OLDEST_VERSION}); "
            "write its memories out with the memos that made it (`memos dump`), and load them here"
        )


def in_one_line(sql: str) -> str:
    """A statement as it is compared with another."""
    return " ".join(sql.split())


@cache
def schema() -> frozenset[tuple[str, str]]:
    """(name, statement) of all that vault.db is made of, in an empty one; each statement in one line."""
    return frozenset((name, in_one_line(sql)) for name, sql in blank()[0])


@cache
def blank() -> tuple[tuple[tuple[str, str], ...], dict[str, list[tuple[Any, ...]]]]:
    """(name, statement) of all that an empty vault.db is made of, in order, and the rows that it begins with."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for statement in TABLES:
            db.execute(statement)
        made = db.execute("SELECT name, sql, type FROM main.sqlite_master WHERE sql IS NOT NULL").fetchall()
        tables = [name for name, _, kind in made if kind == "table" and not name.startswith("sqlite_")]
        rows = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        return tuple((name, sql) for name, sql, _ in made), {name: found for name, found in rows.items() if found}
