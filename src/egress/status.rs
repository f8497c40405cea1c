//! What the operator's window shows of the egress.
