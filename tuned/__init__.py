"""The database that ships with lfbo-aot: data only; see docs/database.md for the format."""
