"""Gives memory to a plain transformers chat loop: `with_memory` replaces `pipeline("text-generation", ...)`.

    pipe = with_memory(model, tokenizer)
    messages = []
    while message := input("> "):
        messages = pipe([*messages, {"role": "user", "content": message}])[0]["generated_text"]
        print(messages[-1]["content"])

Knows the kernel's model arguments and the Memory API.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memos.config import Config
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.api.values import Answer

Message = dict[str, Any]


def with_memory(
    model: Any,
    tokenizer: Any,
    config: Config = Config(),
    *,
    vault: Path | str | None = None,
    user_id: str | None = None,
) -> ChatLoop:
    """A model that is loaded already, and is not changed, with the memories of a vault. config: `decode` says how long
    an answer may be and how it is drawn. Raises VaultError, HostError."""
    from memos.kernel.mem_os import MemOS

    return ChatLoop(Memory(kernel=MemOS(config, model=model, tokenizer=tokenizer, vault=vault)), user_id)


class ChatLoop:
    """Called as transformers' pipeline for chats is, and answers in its form. What the last message says is remembered,
    and what it asks is answered with what is; `last` tells what that was, and what it cost."""

    def __init__(self, memory: Memory, user_id: str | None = None) -> None:
        self.memory, self._user = memory, user_id
        self.last: Answer | None = None

    def __call__(self, messages: str | list[Message]) -> list[dict[str, Any]]:
        """messages: a conversation, or its first message. [{"generated_text": the conversation with the answer}]; of a
        text, the answer alone. Raises what `Memory.chat` raises."""
        self.last = self.memory.chat(messages, user_id=self._user)
        if isinstance(messages, str):
            return [{"generated_text": self.last["text"]}]
        return [{"generated_text": [*messages, {"role": "assistant", "content": self.last["text"]}]}]

    def close(self) -> None:
        self.memory.close()

    def __enter__(self) -> ChatLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
