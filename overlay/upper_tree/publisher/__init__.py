"""The publisher's side: events are kept until every tree that they visit has accepted them."""
