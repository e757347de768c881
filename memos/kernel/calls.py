"""Every public call beside the main path, as one class: what pipelines are made of, and what the kernel adds to."""

from memos.kernel.services.current import Current
from memos.kernel.services.granting import Granting
from memos.kernel.services.life import Life
from memos.kernel.services.seeing import Seeing
from memos.plugins.packs.travelling import Travelling


class Calls(Current, Life, Travelling, Granting, Seeing):
    """All kinds of calls over one set of parts; none overrides another."""
