"""The sync face of the client, derived from `_async`."""
