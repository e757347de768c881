"""One model is loaded at a time, whatever asks for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALONE = threading.RLock()


@contextmanager
def loading() -> Iterator[None]:
    """Around imports of transformers within functions, and around what it loads.

    While it builds a model it changes torch for the whole process (the default type, how weights begin, where they
    lie), and who imports it while another thread does is handed a module that is not whole.
    """
    with _ALONE:
        yield
