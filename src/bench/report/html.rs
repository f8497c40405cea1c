//! The report as a page.

use super::summary::Summary;

/// All of it.
pub fn html(summary: &Summary) -> String {
    format!("<!doctype html><title>{}</title>", summary.url)
}
