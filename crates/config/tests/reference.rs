//! Checks that `docs/configuration.md` agrees with the rows. To write it again:
//!
//! ```text
//! WEIR_REFRESH=1 cargo test -p weir-config --test reference
//! ```

use std::{fs, path::Path};

#[test]
fn the_reference_page_is_what_the_rows_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let wanted = weir_config::reference();
    if std::env::var_os("WEIR_REFRESH").is_some() {
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        fs::write(&page, &wanted).unwrap();
    }
    let kept = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        kept == wanted,
        "docs/configuration.md is stale: WEIR_REFRESH=1 cargo test -p weir-config --test reference"
    );
}
