//! Files that the egress needs, read before the gateway is locked in.
