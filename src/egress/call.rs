//! A call, step by step.
