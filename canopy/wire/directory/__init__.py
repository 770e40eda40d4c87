"""The address directory over Kademlia."""
