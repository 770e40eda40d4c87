"""Two rings that meet become one."""
