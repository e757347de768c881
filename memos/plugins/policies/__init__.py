"""Other memory systems and baselines, each a policy that one line of YAML selects."""
