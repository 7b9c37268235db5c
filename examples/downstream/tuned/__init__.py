"""The checked-in database: data, found by its folder. Nothing in it is imported or run."""
