"""Language and doors: how requests come in, and how they are understood."""
