"""Runs the command line as `python -m memos`."""

from memos.interface.doors.cli.app import main

main()
