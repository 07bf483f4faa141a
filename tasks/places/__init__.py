"""Where tasks keep files: folders at any fsspec URL, what makes local ones last, and the mounts below them."""
