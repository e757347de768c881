"""Memories for agents over the Model Context Protocol: `memos mcp`, and /v1/mcp of `memos serve`."""
