"""The servers that the tests of the core's routes ask, too."""

from tests.interface.doors.server.conftest import client, key, memory, url

__all__ = ["client", "key", "memory", "url"]
