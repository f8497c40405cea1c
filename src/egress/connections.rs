//! Connections to one origin: kept, made ahead, and made when needed.
