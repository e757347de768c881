"""Settings of `memos serve`: where it listens, and how much the holder of a key may ask of it."""

from __future__ import annotations

from pydantic import Field

from memos.config.section import Section


class KeyLimits(Section):
    """What the holder of one key may ask of a server; beyond, it is told when to ask again (429)."""

    requests_a_minute: int | None = Field(None, ge=1, description="on average, and at most so many at once; unset: any")
    concurrent: int = Field(64, ge=1, description="requests that go on at the same time")


class ServeConfig(KeyLimits):
    """`memos serve`. The limits hold for every key, but those that are named."""

    host: str = Field("127.0.0.1", description="where it listens; beyond loopback only where there is a key")
    port: int = Field(8000, ge=0, le=65535, description="0: one that is free")
    body_bytes: int = Field(4 << 20, ge=1024, description="most of a request's body; a longer one is not read (413)")
    workers: int = Field(
        8, ge=1, description="calls that go on beside each other, those for the model apart (model.requests_at_once)"
    )
    queue: int = Field(256, ge=0, description="calls that wait for the model, for a worker, to promote; beyond: 429")
    grace_s: float = Field(30.0, ge=0, description="for requests to end, once the server is told to stop")
    proxies: tuple[str, ...] = Field(
        (), description="addresses of reverse proxies: what they say of who calls (X-Forwarded-For) is believed"
    )
    keys: dict[str, KeyLimits] = Field({}, description="by the id of a key (`memos key list`), in place of the limits")

    def of(self, key: str) -> KeyLimits:
        return self.keys.get(key, self)
