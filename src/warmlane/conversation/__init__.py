"""The dialect-neutral vocabulary: messages, turns and their events. Pure data, no I/O."""
