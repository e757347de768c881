"""The command line `memos`."""
