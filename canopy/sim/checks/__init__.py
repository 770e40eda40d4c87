"""What must hold in a world, and the records that tell why it does not."""
