"""Recovery: `check` says what is pending, `recover` finishes what may be finished without a person."""
