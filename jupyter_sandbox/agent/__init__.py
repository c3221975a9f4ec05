"""What runs inside a runtime. Imports nothing else of this package: only the standard library and ipykernel."""
