//! Case files: the test reads `cases/NAME.toml`. `cases/NAME.expected` holds what `weir check --print` says about it:
//! every diagnostic, or the warnings and the settings in force.
//!
//! After an intended change, write the expected files again and read the difference:
//!
//! ```text
//! WEIR_REFRESH=1 cargo test -p weir-config --test cases && git diff crates/config/tests/cases
//! ```

use std::{fs, path::Path};

use weir_config::{Environment, read, to_toml};

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let refresh = std::env::var_os("WEIR_REFRESH").is_some();
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            Some(
                entry
                    .unwrap()
                    .file_name()
                    .to_str()?
                    .strip_suffix(".toml")?
                    .to_owned(),
            )
        })
        .collect();
    names.sort();
    assert!(names.len() >= 40, "only {} cases were found", names.len());

    let mut failed = Vec::new();
    for name in &names {
        let text = fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
        let outcome = outcome(name, &text);
        let expected_file = folder.join(format!("{name}.expected"));
        if refresh {
            fs::write(&expected_file, &outcome).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&expected_file).unwrap_or_default();
        if outcome != expected {
            failed.push(format!(
                "--- case {name}: expected\n{expected}\n--- case {name}: got\n{outcome}"
            ));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} cases:\n{}",
        failed.len(),
        names.len(),
        failed.join("\n")
    );
}

/// Every expected file has a case.
#[test]
fn every_expectation_has_its_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.with_extension("toml").exists(), "{}", path.display());
    }
}

fn outcome(name: &str, text: &str) -> String {
    let environment = environment();
    match read("weir.toml", text, &environment) {
        Err(diagnostics) => diagnostics.to_string(),
        Ok(checked) => {
            let printed = to_toml(&checked.config);
            let elsewhere = Environment {
                folder: "/elsewhere".into(),
                cores: 64,
                memory: 1 << 40,
                open_files: 256,
            };
            match read("printed", &printed, &elsewhere) {
                Ok(again) => assert_eq!(again.config, checked.config, "case {name}: {printed}"),
                Err(diagnostics) => {
                    panic!("case {name}: what was printed is wrong:\n{diagnostics}\n{printed}")
                }
            }
            let warnings = checked.warnings.to_string();
            match warnings.is_empty() {
                true => printed,
                false => format!("{warnings}\n{printed}"),
            }
        }
    }
}

fn environment() -> Environment {
    Environment {
        folder: "/etc/weir".into(),
        cores: 2,
        memory: 8 << 30,
        open_files: 1 << 20,
    }
}
