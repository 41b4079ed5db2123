"""The engine's own binary, for what only the engine may write."""
