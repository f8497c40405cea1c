//! Names → addresses, kept for as long as DNS says.
