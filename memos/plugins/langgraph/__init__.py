"""LangGraph: memories as the store of a graph."""
