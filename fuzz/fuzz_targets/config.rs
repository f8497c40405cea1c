//! weir.toml: every text gives a configuration or a list of errors. A configuration stays the same when it is printed
//! and read again.
#![no_main]

use weir_config::{Environment, parse, to_toml};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let environment = Environment {
        folder: "/srv".into(),
        cores: 4,
        memory: 1 << 32,
        open_files: 1 << 16,
    };
    if let Ok(config) = parse("weir.toml", text, &environment) {
        let printed = to_toml(&config);
        assert_eq!(
            parse("printed.toml", &printed, &environment).ok(),
            Some(config),
            "{printed}"
        );
    }
});
