"""The public calls, a service for each kind."""
