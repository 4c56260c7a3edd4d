"""Which models exist, which are loaded, and the tasks their turns run in."""
