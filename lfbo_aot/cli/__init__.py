"""The `lfbo-aot` command."""
