"""Makes questions about memories in which the reader's phrasebook finds nothing to ask for."""
