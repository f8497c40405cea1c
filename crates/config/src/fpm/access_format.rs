//! `access.format`: the formats that PHP-FPM 8.2 accepts (sapi/fpm/fpm/fpm_log.c).

/// Checks a format. Returns it for weir, without parts that have no meaning for PHP-FPM.
///
/// # Errors
/// The problem, in PHP-FPM's words.
pub(super) fn check(format: &str) -> Result<String, String> {
    let mut plain = Vec::with_capacity(format.len());
    let mut rest = format.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let mut modifier: &[u8] = b"";
        // A modifier may be followed by another one. Then the last one counts.
        while let Some(after) = rest.strip_prefix(b"{") {
            let end = after.iter().position(|&byte| byte == b'}');
            match end.map(|end| (&after[..end], &after[end + 1..])) {
                Some((inside, behind)) if !behind.is_empty() => {
                    modifier = inside;
                    rest = behind;
                }
                _ => return Err("missing closing embrace in the access.format".into()),
            }
        }
        let Some((&letter, after)) = rest.split_first() else {
            break;
        };
        rest = after;
        conversion(letter, modifier)?;
        plain.push(b'%');
        if !modifier.is_empty() {
            plain.push(b'{');
            plain.extend_from_slice(modifier);
            plain.push(b'}');
        }
        plain.push(letter);
    }
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

fn conversion(letter: u8, modifier: &[u8]) -> Result<(), String> {
    let shown = char::from(letter);
    let one_of = |allowed: &[&str], names: &str| {
        let known = |name: &&str| modifier.eq_ignore_ascii_case(name.as_bytes());
        match modifier.is_empty() || allowed.iter().any(known) {
            true => Ok(()),
            false => Err(format!(
                "only {names} are allowed as a modifier for %{shown} ('{}')",
                String::from_utf8_lossy(modifier)
            )),
        }
    };
    match letter {
        b'C' => one_of(&["total", "user", "system"], "'total', 'user' or 'system'"),
        b'd' => one_of(
            &[
                "seconds",
                "milliseconds",
                "milli",
                "miliseconds",
                "mili",
                "microseconds",
                "micro",
            ],
            "'seconds', 'milli', 'milliseconds', 'micro' or 'microseconds'",
        ),
        b'M' => one_of(
            &["bytes", "kilobytes", "kilo", "megabytes", "mega"],
            "'bytes', 'kilo', 'kilobytes', 'mega' or 'megabytes'",
        ),
        b'e' if modifier.is_empty() => Err(format!(
            "the name of the environment variable must be set between embraces for %{shown}"
        )),
        b'o' if modifier.is_empty() => Err(format!(
            "the name of the header must be set between embraces for %{shown}"
        )),
        b'e' | b'o' | b't' | b'T' => Ok(()),
        b'%' | b'f' | b'l' | b'm' | b'n' | b'p' | b'P' | b'q' | b'Q' | b'r' | b'R' | b's'
        | b'u' => match modifier.is_empty() {
            true => Ok(()),
            false => Err(format!("embrace is not allowed for modifier %{shown}")),
        },
        _ => Err(format!("Invalid token in the access.format (%{shown})")),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn formats_are_taken_and_refused_as_php_fpm_does() {
        for (good, plain) in [
            ("%R - %u %t \"%m %r\" %s", "%R - %u %t \"%m %r\" %s"),
            (
                "%{mili}d %{MEGA}M %{X}e %{Content-Type}o %{%s}t %%",
                "%{mili}d %{MEGA}M %{X}e %{Content-Type}o %{%s}t %%",
            ),
            ("a%", "a"),
            ("", ""),
            ("%{a}{b}e", "%{b}e"),
            ("%{}t", "%t"),
        ] {
            assert_eq!(check(good).as_deref(), Ok(plain), "{good}");
        }
        for (bad, message) in [
            (
                "%{x}C",
                "only 'total', 'user' or 'system' are allowed as a modifier for %C ('x')",
            ),
            ("%{x", "missing closing embrace in the access.format"),
            ("%{x}", "missing closing embrace in the access.format"),
            ("%{a}m", "embrace is not allowed for modifier %m"),
            ("%z", "Invalid token in the access.format (%z)"),
            (
                "%e",
                "the name of the environment variable must be set between embraces for %e",
            ),
            (
                "%o",
                "the name of the header must be set between embraces for %o",
            ),
        ] {
            assert_eq!(check(bad).unwrap_err(), message, "{bad}");
        }
    }
}
