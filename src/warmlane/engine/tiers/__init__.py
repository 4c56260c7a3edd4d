"""Where KV lives that has left the hot pool: snapshots in memory and on disk."""
