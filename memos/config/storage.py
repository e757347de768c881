"""Settings of the vault: where it is, how much it may hold, how it is encrypted."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from memos.config.section import Section


class QuotaConfig(Section):
    """What a vault may hold; unset: as much as the disk. A write beyond is refused before anything is written."""

    bytes: int | None = Field(None, ge=0, description="of all that it keeps: databases, payloads and the kept index")
    blob_bytes: int | None = Field(None, ge=0, description="of payloads: KV files and adapters")
    cubes_per_user: int | None = Field(None, ge=0, description="memories, KV and adapters, in every state")


class JobsConfig(Section):
    """Background work that several processes share."""

    lease_s: float = Field(
        30.0,
        ge=0.5,
        description="seconds, by the database's clock, after which a job whose process was not heard of is another's; "
        "a process that works is heard of three times within them",
    )
    tries: int = Field(3, ge=1, description="a job that was begun this often and took its process along has failed")


class VaultConfig(Section):
    path: Path | None = Field(
        None,
        description="folder of the vault; unset: OUT/vault in `memos run --out OUT`; else $MEMOS_VAULT or memos-data",
    )
    url: SecretStr | None = Field(
        None,
        description="postgresql://USER@HOST/NAME: the PostgreSQL server (14 or later, with pgvector) that the vault is "
        "on, shared by all machines that name it; vault.path then holds what is this machine's own. The password may "
        "stand in it, in PGPASSWORD or in ~/.pgpass; unset: as server.json of the folder says, or a vault in files",
    )
    quota: QuotaConfig = Field(QuotaConfig(), description="what the vault may hold")
    jobs: JobsConfig = Field(JobsConfig(), description="how background work is shared between processes")
    key: str | None = Field(
        None,
        description="file:PATH, env:NAME or keyring:SERVICE/NAME: where the key of an encrypted vault is, a passphrase "
        "or 32 bytes in hex or base64; a new vault is encrypted with it; unset: where key.json of the vault says that "
        "it was, or a vault that is not encrypted",
    )
    scratch: Path | None = Field(
        None,
        description="where an encrypted vault keeps payloads in the clear while it is open; unset: /dev/shm. It must "
        "be on a file system in memory",
    )

    blobs: str | None = Field(
        None,
        description="s3://BUCKET/PREFIX, gs://, az:// or file:///FOLDER: where payloads (KV files and adapters) lie, "
        "for all machines that share the vault; credentials are found where the store's own tools find them, as in "
        "AWS_ACCESS_KEY_ID. Unset: where they were, which is with the rows at first",
    )
    cache_bytes: int = Field(
        1 << 32, ge=0, description="of copies of what is in vault.blobs, on this machine; the least recently used go"
    )

    @property
    def server(self) -> str | None:
        """`url`, with its password."""
        return self.url.get_secret_value() if self.url else None
