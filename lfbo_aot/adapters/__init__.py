"""Seams to kernel languages. `adapters.helion` is the only importer of Helion's internals."""
