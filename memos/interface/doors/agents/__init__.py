"""Doors for agents: MCP, LangGraph, a chat loop."""
