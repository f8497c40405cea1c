//! Who calls: which worker of which pool, and until when its own request may last.
