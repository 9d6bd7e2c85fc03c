"""A node over HTTP: `http` is what every request goes through, `oauth` is for services, `routes` has the rest."""
