"""The spine: the one path of a turn."""
