"""Decides what a request sees and what moves between forms: budgets, costs, foresight, background work."""
