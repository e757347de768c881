"""Every public call beside the main path, as one class: what pipelines are made of, and what the kernel adds to."""

from memos.calls.current import Current
from memos.calls.granting import Granting
from memos.calls.life import Life
from memos.calls.seeing import Seeing
from memos.calls.travelling import Travelling


class Calls(Current, Life, Travelling, Granting, Seeing):
    """All kinds of calls over one set of parts; none overrides another."""
