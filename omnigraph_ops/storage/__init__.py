"""The object store: addresses, small files, listings, copies, and what a store's errors mean."""
