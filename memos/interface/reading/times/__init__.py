"""Words for times to days."""
