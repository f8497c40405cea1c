//! The report of a load: the same [`Summary`] as text, as JSON, and as a page.

mod chart;
mod html;
mod json;
mod progress;
mod summary;
mod text;

pub use html::html;
pub use json::json;
pub use progress::Progress;
pub use summary::Summary;
pub use text::{span, text};
