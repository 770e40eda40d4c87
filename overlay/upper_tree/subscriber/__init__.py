"""The subscriber's side: registrations and their leases, and what is done with deliveries."""
