"""What people read: a view of a plan, a report or a list, and one renderer for each place where they read it."""
