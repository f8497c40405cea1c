//! The one door to the kernel: safe functions over owned descriptors. The only crate with unsafe code.
