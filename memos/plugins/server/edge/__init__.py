"""What every HTTP request passes: credentials, limits, errors, metrics."""
