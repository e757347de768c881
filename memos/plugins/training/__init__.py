"""How adapters and trained KV are made, behind the extension point memos.executors: in this process, or in its own."""
