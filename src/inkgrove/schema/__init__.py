"""What messages mean: field types, schemas at a version, migrations, the fold of one instance."""
