"""What a policy decides, and the default one; the others that ship are memos/plugins/policies."""
