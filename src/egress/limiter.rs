//! How many calls an origin gets at once, and who waits: the pools' own queue.
