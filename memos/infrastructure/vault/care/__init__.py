"""A vault as a whole: checked, backed up, restored, measured."""
