"""How good each way between the forms of memory is, on the same groups."""
