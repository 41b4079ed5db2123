"""What keeps writers apart: leases, locks, holds, sealed plans, guards, and the window of a commit."""
