"""Language to operations. Knows no stores and no tensors."""
