"""The three forms: serving them, and moving between them."""
