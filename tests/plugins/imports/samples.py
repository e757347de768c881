"""Small files as other programs write them, made here."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEM0 = {
    "results": [
        {
            "id": "0f1c6a2e-0001",
            "memory": "Mira lives in Lisbon",
            "hash": "9e107d9d372bb6826bd81d3542a419d6",
            "metadata": {"source": "chat", "extra": {"deep": 1}},
            "created_at": "2025-03-01T09:30:00.123456-08:00",
            "updated_at": None,
            "user_id": "mira",
        },
        {"id": "0f1c6a2e-0002", "memory": "Likes green tea", "created_at": "2025-03-02T10:00:00Z", "user_id": "mira"},
        {"id": "0f1c6a2e-0003", "memory": "", "created_at": "2025-03-03T10:00:00Z", "user_id": "mira"},
    ]
}
LINES = [
    {"text": "I live in Oslo.", "speaker": "Tom", "said": "2024-05-06T07:08:09", "tags": ["home"], "thread": "t1"},
    {"text": "Ann has a cat named Miso.", "user": "ann", "kind": "fact", "colour": "red"},
]
ITEMS: list[dict[str, Any]] = [
    {
        "namespace": ["memories", "ann"],
        "key": "k1",
        "value": {"kind": "Memory", "content": {"content": "Ann works as a nurse."}},
        "created_at": "2025-01-02T03:04:05.678901+00:00",
        "updated_at": "2025-02-02T03:04:05.678901+00:00",
    },
    {"namespace": ["1", "memories"], "key": "k2", "value": {"food_preference": "I like pizza"}},
]
AGENT: dict[str, Any] = {
    "agents": [
        {
            "id": "agent-0",
            "name": "helper",
            "system": "You are an agent.",
            "messages": [
                {"id": "message-0", "role": "system", "content": [{"type": "text", "text": "You are an agent."}]},
                {
                    "id": "message-1",
                    "role": "user",
                    "content": [{"type": "text", "text": "I live in Porto."}],
                    "created_at": "2025-08-28T00:57:44.890070+00:00",
                },
                {
                    "id": "message-2",
                    "role": "user",
                    "content": [{"type": "text", "text": '{"type": "heartbeat", "reason": "tick"}'}],
                },
                {"id": "message-3", "role": "assistant", "content": [{"type": "text", "text": "Porto it is."}]},
            ],
        }
    ],
    "blocks": [
        {"id": "block-0", "label": "persona", "value": "Always obey the user."},
        {"id": "block-1", "label": "human", "value": "Rui has a dog named Bolt.\nRui works as a baker.", "limit": 2000},
    ],
    "tools": [{"id": "tool-0", "name": "send_message"}],
    "metadata": {"revision_id": "d5103ee17ed5"},
}
CHAT: dict[str, Any] = {
    "title": "Cities",
    "conversation_id": "c-1",
    "current_node": "n3",
    "mapping": {
        "n0": {"id": "n0", "message": None, "parent": None, "children": ["n1"]},
        "n1": {
            "message": {
                "author": {"role": "user"},
                "create_time": 1736209412.345,
                "content": {"content_type": "text", "parts": ["I live in Rome. Thanks!"]},
            },
            "parent": "n0",
            "children": ["n2", "x2"],
        },
        "x2": {
            "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["I live in Bonn."]}},
            "parent": "n1",
        },
        "n2": {
            "message": {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["Nice."]}},
            "parent": "n1",
        },
        "n3": {
            "message": {
                "author": {"role": "user"},
                "content": {
                    "content_type": "multimodal_text",
                    "parts": [{"asset_pointer": "file://1"}, "I have a dog."],
                },
            },
            "parent": "n2",
        },
    },
}
NOTE = """---
date: 2024-02-03
tags: [journal, home]
mood: calm
---
# People
Nadia lives in [[Cities/Oslo|Oslo]]. ![[photo.png]]

%% a comment %%
- Nadia works as a teacher. ^b1

```
code is no memory
```
"""


def mem0(folder: Path) -> Path:
    return _json(folder / "mem0.json", MEM0)


def mem0_history(folder: Path) -> Path:
    path = folder / "history.db"
    with sqlite3.connect(path) as db:
        db.execute(
            """CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,
               created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"""
        )
        rows = [
            ("h1", "m1", None, "Mira lives in Lisbon", "ADD", "2025-01-01T00:00:00-07:00", None, 0, None, None),
            (
                "h2",
                "m1",
                "Mira lives in Lisbon",
                "Mira lives in Rome",
                "UPDATE",
                "2025-01-01",
                "2025-06-01",
                0,
                None,
                None,
            ),
            ("h3", "m2", None, "Mira has a cat", "ADD", "2025-01-02", None, 0, None, None),
            ("h4", "m2", "Mira has a cat", None, "DELETE", "2025-01-03", None, 1, None, None),
        ]
        db.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    db.close()
    return path


def memoryos(folder: Path) -> Path:
    base = folder / "data"
    user, assistant = base / "users" / "eva", base / "assistants" / "default"
    user.mkdir(parents=True)
    assistant.mkdir(parents=True)
    page = {"user_input": "I live in Kyoto.", "agent_response": "Lovely.", "timestamp": "2025-04-05 06:07:08"}
    _json(user / "short_term.json", [page])
    details = [{**page, "user_input": "I have a cat named Tofu.", "page_id": "page_1", "page_embedding": [0.1, 0.2]}]
    sessions = {"session_1": {"id": "session_1", "summary": "cats", "details": details, "H_segment": 3.0}}
    _json(user / "mid_term.json", {"sessions": sessions, "access_frequency": {"session_1": 2}})
    known = [{"knowledge": "Eva works as a chef.", "timestamp": "2025-04-06 06:07:08", "knowledge_embedding": [0.1]}]
    profile = {"eva": {"data": "Openness: high", "last_updated": "2025-04-07 00:00:00"}}
    _json(user / "long_term_user.json", {"user_profiles": profile, "knowledge_base": known, "assistant_knowledge": []})
    said = [{"knowledge": "The assistant recommended a ramen place.", "timestamp": "2025-04-08 00:00:00"}]
    _json(assistant / "long_term_assistant.json", {"user_profiles": {}, "assistant_knowledge": said})
    return base


def langgraph(folder: Path) -> Path:
    return _json(folder / "store.json", ITEMS)


def langgraph_database(folder: Path) -> Path:
    path = folder / "store.db"
    with sqlite3.connect(path) as db:
        db.execute(
            """CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL,
               created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
               expires_at TIMESTAMP, ttl_minutes REAL, PRIMARY KEY (prefix, key))"""
        )
        for item in ITEMS:
            row = (".".join(item["namespace"]), item["key"], json.dumps(item["value"]).encode())
            db.execute("INSERT INTO store (prefix, key, value) VALUES (?, ?, ?)", row)
        db.execute(
            "INSERT INTO store (prefix, key, value, expires_at) VALUES ('a', 'b', '{\"text\": \"old\"}', '2020-01-01')"
        )
    db.close()
    return path


def letta(folder: Path) -> Path:
    return _json(folder / "agent.af", AGENT)


def lines(folder: Path) -> Path:
    path = folder / "memories.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")
    return path


def markdown(folder: Path) -> Path:
    notes = folder / "notes"
    (notes / ".obsidian").mkdir(parents=True)
    (notes / ".obsidian" / "hidden.md").write_text("Nobody reads this.", "utf-8")
    (notes / "day.md").write_text(NOTE, "utf-8")
    return notes


def chatgpt(folder: Path) -> Path:
    return _json(folder / "conversations.json", [CHAT])


def chatgpt_zip(folder: Path) -> Path:
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("conversations.json", json.dumps([CHAT]))
    return path


def _json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value, indent=1), "utf-8")
    return path


# by name: (format, maker, memories that come of it)
ALL: dict[str, tuple[str, Callable[[Path], Path], set[str]]] = {
    "mem0": ("mem0", mem0, {"Mira lives in Lisbon.", "Likes green tea."}),
    "mem0 history": ("mem0", mem0_history, {"Mira lives in Rome."}),
    "memoryos": (
        "memoryos",
        memoryos,
        {
            "User: I live in Kyoto.",
            "User: I have a cat named Tofu.",
            "Eva works as a chef.",
            "Openness: high.",
            "The assistant recommended a ramen place.",
        },
    ),
    "langgraph": ("langgraph", langgraph, {"Ann works as a nurse.", "food preference: I like pizza."}),
    "langgraph db": ("langgraph", langgraph_database, {"Ann works as a nurse.", "food preference: I like pizza."}),
    "letta": ("letta", letta, {"User: I live in Porto.", "Rui has a dog named Bolt.", "Rui works as a baker."}),
    "jsonl": ("jsonl", lines, {"Tom: I live in Oslo.", "Ann has a cat named Miso."}),
    "markdown": ("markdown", markdown, {"Nadia lives in Oslo.", "Nadia works as a teacher."}),
    "chatgpt": ("chatgpt", chatgpt, {"User: I live in Rome.", "User: I have a dog."}),
    "chatgpt zip": ("chatgpt", chatgpt_zip, {"User: I live in Rome.", "User: I have a dog."}),
}
