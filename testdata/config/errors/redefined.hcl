cluster = "a"
cluster = "b"
