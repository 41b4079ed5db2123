"""Health: what each table costs its readers and its store, and how much of that maintenance can win back."""
