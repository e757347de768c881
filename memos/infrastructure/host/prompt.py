"""Memories and messages -> token ids. Knows templates; knows no tensors and no cubes.

A prompt is cut in two: the prefix (everything up to the last memory) and the tail (the rest). Each memory
is tokenised as a line of its own, so the prefix of the same memories is the same ids whether they are
read as text or were encoded before, and a KV cache of it is exact.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from memos.config import ModelConfig
from memos.errors import HostError

Message = Mapping[str, Any]  # role, content, and perhaps the memories that are shown with it
_MEMORIES = "\u2983memories\u2984"  # stands for the memories while a template is filled
# Some templates write today's date before the memories: KV made yesterday would fit no prompt of today. The date is
# the one that Llama 3's template writes where there is no clock.
_STOPPED_CLOCK = "{%- macro strftime_now(format) -%}26 Jul 2024{%- endmacro -%}"


@dataclass(frozen=True)
class Prompt:
    """Token ids of one request."""

    prefix: tuple[int, ...]
    tail: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.tail)


class PromptFormat:
    """How one model wants to be asked."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: ModelConfig) -> None:
        self._tokenizer, self._config = tokenizer, config
        # split_special_tokens is a setting of the tokenizer behind the call: two threads would swap theirs, and what
        # a memory says would become control tokens
        self._lock = threading.Lock()
        if config.template == "chat" and not tokenizer.chat_template:
            raise HostError("model.template is chat, but the tokenizer has no chat template; set it to auto or plain")
        self.chat = config.template == "chat" or (config.template == "auto" and bool(tokenizer.chat_template))
        self.stop = () if self.chat else ("\nUser:",)

    @property
    def identity(self) -> str:
        """What the ids depend on beside the tokenizer; part of the fingerprint."""
        c = self._config
        # Filled too, since a template may write today's date before the memories.
        filled = self._fill(f"{c.system}{c.memory_header}{_MEMORIES}", [{"role": "user", "content": ""}])
        return "\0".join((str(self._tokenizer.chat_template) if self.chat else "plain", filled, c.memory_line))

    def ids(self, text: str) -> list[int]:
        """Plain tokenisation: nothing is added before or after."""
        with self._lock:
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def line(self, memory: str) -> list[int]:
        """One memory as it stands in a prompt. What it says is text, never a control token."""
        line = self._config.memory_line.format(text=memory)
        with self._lock:
            return list(self._tokenizer(line, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def build(self, memories: Sequence[str], messages: Sequence[Message]) -> Prompt:
        """The whole prompt; without memories the prefix is empty and no header is shown.

        Memories of a message stand before it, so that what came earlier in a conversation stays as it was.
        Raises HostError where the template does not show each text once.
        """
        mark = _MEMORIES
        while any(mark in m["content"] for m in messages):  # someone may say just this
            mark += _MEMORIES
        shown = [lines for lines in (memories, *(m.get("memories", ()) for m in messages)) if lines]
        header = f"{self._config.memory_header}{mark}"
        told = [{**m, "before": f"{header}\n" if m.get("memories") else ""} for m in messages]
        text = self._fill(f"{self._config.system}{header}" if memories else self._config.system, told)
        first, *rest = text.split(mark)
        if len(rest) != len(shown):
            raise HostError(
                f"the chat template shows {len(rest)} of {len(shown)} groups of memories; set model.template to plain"
            )
        pieces = [self._encode(first)]
        for lines, after in zip(shown, rest, strict=True):
            pieces += [[i for memory in lines for i in self.line(memory)], self.ids(after)]
        cut = 2 if memories else 0
        prefix, tail = (tuple(i for piece in part for i in piece) for part in (pieces[:cut], pieces[cut:]))
        return Prompt(prefix, tail)

    def prefix(self, memories: Sequence[str]) -> tuple[int, ...]:
        """Ids of the memories alone, with what stands before them."""
        return self.build(memories, [{"role": "user", "content": ""}]).prefix

    def _encode(self, text: str) -> list[int]:
        """Ids of the beginning of a prompt; a template writes its own first token."""
        first = [] if self.chat or self._tokenizer.bos_token_id is None else [self._tokenizer.bos_token_id]
        return first + self.ids(text)

    def _fill(self, system: str, messages: Sequence[Message]) -> str:
        if not self.chat:
            turns = "".join(f"{m.get('before', '')}{m['role'].title()}: {m['content']}\n" for m in messages)
            return f"{system}\n{turns}Assistant:" if system else f"{turns}Assistant:"
        told = [{"role": m["role"], "content": f"{m.get('before', '')}{m['content']}"} for m in messages]
        if system:
            try:
                text = self._template([{"role": "system", "content": system}, *told])
                if system in text:
                    return text
            except TemplateError:
                pass  # the model knows no system role: its first message carries the memories
            first, *rest = told
            told = [{"role": first["role"], "content": f"{system}\n{first['content']}"}, *rest]
        return self._template(told)

    def _template(self, messages: Sequence[dict[str, str]]) -> str:
        template = self._tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = _STOPPED_CLOCK + template
        text = self._tokenizer.apply_chat_template(
            list(messages), chat_template=template, tokenize=False, add_generation_prompt=True
        )
        return str(text)
