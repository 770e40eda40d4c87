"""One widget per file. A widget draws what it is given and posts messages to its screen."""
