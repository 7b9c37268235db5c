"""What is known: entries, shards, journals, and the layers they are looked up in."""
