"""What stores, permits and computes: the vault, governance and the host of the local model."""
