"""Commands of the command line: those that are calls of the Memory API, and those for who looks after memories."""
