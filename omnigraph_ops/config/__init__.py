"""Settings from the environment and the file that describes many graphs."""
