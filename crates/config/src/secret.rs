//! Headers of calls, with parts from elsewhere: `Bearer ${file:/etc/weir/api.token}`.

use std::path::Path;

use crate::{
    model::{Secret, SecretPiece},
    scalar::{self, Checked, wrong},
    template, texts,
};

/// A name and value of `set_headers`. Relative paths are relative to `folder`.
pub(crate) fn header(folder: &Path, name: &str, value: &str) -> Checked<(String, Secret)> {
    let name = texts::header_name(name)?;
    let lower = name.to_ascii_lowercase();
    if lower == "host" {
        return wrong(
            "Host is always the name that the caller uses",
            "make the application call the host by that name",
        );
    }
    if OF_THE_CONNECTION.contains(&lower.as_str()) || lower.starts_with("proxy-") {
        return wrong(
            format!("{name} belongs to the connection and cannot be set"),
            "",
        );
    }
    if value.is_empty() || !texts::is_header_template(value) {
        return wrong(
            format!("the value of {name} must be one line, without spaces at its ends"),
            "",
        );
    }
    Ok((name, parse(folder, value)?))
}

fn parse(folder: &Path, text: &str) -> Checked<Secret> {
    let between = |inner: &str| piece(folder, inner);
    template::pieces(text, SecretPiece::Text, between).map(Secret)
}

/// Parses the text between the braces.
fn piece(folder: &Path, inner: &str) -> Checked<SecretPiece> {
    match inner.split_once(':') {
        Some(("file", "")) => wrong("`${file:}` needs a path", "write ${file:PATH}"),
        Some(("file", path)) => match texts::path(folder, path)? {
            // Such a path could not be printed again.
            path if path.to_string_lossy().contains('}') => wrong(
                "the path of `${file:…}` cannot have a `}`",
                "rename the file",
            ),
            path => Ok(SecretPiece::File(path)),
        },
        Some(("env", name)) if is_variable(name) => Ok(SecretPiece::Env(name.to_owned())),
        Some(("env", name)) => wrong(
            format!("{name:?} is not a name of an environment variable"),
            "for example ${env:API_KEY}",
        ),
        _ => {
            let (kind, _) = inner.split_once(':').unwrap_or((inner, ""));
            let hint = match scalar::nearest(kind, ["file", "env"]) {
                Some(near) => format!("did you mean ${{{near}:…}}?"),
                None => "write ${file:PATH} or ${env:NAME}; write `$${` for a literal `${`".into(),
            };
            wrong(format!("`${{{inner}}}` is not known here"), hint)
        }
    }
}

fn is_variable(name: &str) -> bool {
    let of_a_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty() && name.bytes().all(of_a_name) && !name.as_bytes()[0].is_ascii_digit()
}

/// Headers of a single connection (RFC 9110 §7.6.1). Headers that begin with `proxy-` are excluded separately.
const OF_THE_CONNECTION: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Secret {
        let folder = Path::new("/etc/weir");
        let read = header(folder, "X-A", value);
        read.unwrap_or_else(|wrong| panic!("{value}: {}", wrong.message))
            .1
    }

    #[test]
    fn what_stands_elsewhere_is_named_and_not_shown() {
        for (written, shown) in [
            ("a", "a"),
            ("Bearer ${file:a/token}", "Bearer ${file:/etc/weir/a/token}"),
            ("${file:/a}${env:B_1}", "${file:/a}${env:B_1}"),
            ("$${x} $ $$ $1", "$${x} $ $$ $1"),
            ("$$${env:A}", "$$${env:A}"),
        ] {
            let secret = read(written);
            assert_eq!(secret.to_string(), shown);
            assert_eq!(read(shown), secret);
        }
    }

    #[test]
    fn text_around_it_is_kept() {
        let pieces = [
            SecretPiece::Text("a ${b} ".to_owned()),
            SecretPiece::Env("C".to_owned()),
            SecretPiece::Text("}".to_owned()),
        ];
        assert_eq!(read("a $${b} ${env:C}}").0, pieces);
    }
}
