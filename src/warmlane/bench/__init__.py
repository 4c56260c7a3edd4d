"""`warmlane bench`: the same seeded work sent to two servers by turns, and what it took each of them."""
