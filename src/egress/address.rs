//! Which addresses are not public, and may be called only where a rule names them.
