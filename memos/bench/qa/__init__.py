"""`memos bench qa`: how well questions are answered with what memory systems show a model, and what an answer costs."""
