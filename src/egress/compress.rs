//! Answers that are compressed for a caller that asks for it.
