"""`python -m memos`."""

from memos.interface.doors.cli.app import main

main()
