"""What a request sees and what moves: budgets, costs, foresight, upkeep."""
