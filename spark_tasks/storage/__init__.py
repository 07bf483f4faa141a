"""The places of tables, local folders or prefixes in a bucket: deltalake's options for them, and errors of stores."""
