"""Use cases of an identity server: identities, services, publishing, querying, proving."""
