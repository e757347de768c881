"""Commands of the command line for those who look after forms and memories, by hand or by a timer."""
