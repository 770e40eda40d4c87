"""Put widgets together, ask the model, answer the widgets' messages."""
