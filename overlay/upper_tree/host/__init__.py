"""The host's side: virtual nodes match the events that visit them."""
