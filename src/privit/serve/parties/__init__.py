"""The parties: server, client and helper."""
