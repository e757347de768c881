"""What decides: finding, choosing, life, forms, policies."""
