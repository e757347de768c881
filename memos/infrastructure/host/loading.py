"""The lock under which transformers is imported and models are loaded, by one thread of the process at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOADING = threading.RLock()


@contextmanager
def loading() -> Iterator[None]:
    """Around imports of transformers within functions, and around what it loads.

    While it builds a model it changes torch for the whole process (the default dtype, how weights are initialised,
    their device), and a thread that imports it while another one does is handed a module that is not complete.
    """
    with _LOADING:
        yield
