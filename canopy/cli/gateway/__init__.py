"""`canopy gateway`: HTTP and MQTT for programs without our client library (canopy/gateway/)."""
