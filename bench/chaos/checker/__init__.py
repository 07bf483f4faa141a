"""The checker: records and what members told in, violations out. Pure; nothing here asks a member anything."""
