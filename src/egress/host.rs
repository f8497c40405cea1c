//! What is known of one origin: its settings, breaker, limit and connections.
