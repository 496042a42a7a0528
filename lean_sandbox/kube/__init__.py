"""The way to the API server: transport, wire types, client, errors, event recorder."""
