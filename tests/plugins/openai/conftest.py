"""The servers that the tests of the core's routes ask, too."""

from tests.plugins.server.conftest import client, key, memory, url

__all__ = ["client", "key", "memory", "url"]
