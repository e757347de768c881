"""`memos vault`: checks, copies and restores vaults, and tells how much they hold."""
