"""Who may do what, and a log of it that cannot be changed unseen."""
