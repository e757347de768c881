"""`python -m memos`."""

from memos.interface.cli import main

main()
