"""Row retention: which rows expire by a policy, and deleting exactly those."""
