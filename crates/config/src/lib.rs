//! Text of `weir.toml` → [`Config`], or every diagnostic at once with file, line, column and a hint.
#![forbid(unsafe_code)]

extern crate alloc;

mod model;
mod template;

pub use model::*;
pub use template::{Piece, Template, Variable};
