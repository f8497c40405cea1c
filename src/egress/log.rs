//! A line for each call.
