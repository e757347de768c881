"""The services behind the public calls, one for each kind."""
