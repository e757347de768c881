"""How many processes and machines users need: a model of serving, held against measured runs."""
