//! `access_format`: the format of a line in PHP-FPM's access log, with the `%` codes of its `access.format`
//! (fpm_log.c).
//!
//! A code may have an argument in braces before its letter: `%{mili}d`, `%{HTTP_HOST}e`. The check of the
//! configuration reports a code that PHP-FPM does not know, and an argument that a code does not take.

use core::fmt;

use crate::scalar::{Checked, wrong};

/// A checked format: texts and codes, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessFormat {
    /// The pieces.
    pub pieces: Vec<FormatPiece>,
    /// The format as written.
    text: String,
}

/// A piece of an [`AccessFormat`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatPiece {
    /// Literal text.
    Text(String),
    /// A `%` code.
    Code(FormatCode),
}

/// The meaning of a `%` code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatCode {
    /// `%C`: processor time of the request, in percent of its duration.
    Cpu(CpuTime),
    /// `%d`: duration of the request.
    Duration(TimeUnit),
    /// `%{NAME}e`: a FastCGI parameter of the request, as sent to the worker.
    Parameter(String),
    /// `%f`: file name of the script.
    Script,
    /// `%l`: length of the request's body, bytes.
    ContentLength,
    /// `%m`
    Method,
    /// `%M`: peak memory of PHP during the request.
    Memory(MemoryUnit),
    /// `%n`: the pool's NAME.
    Pool,
    /// `%{NAME}o`: a header of the response.
    Header(String),
    /// `%p`: process id of the worker.
    Pid,
    /// `%P`: process id of weir's main process.
    ParentPid,
    /// `%q`: the query string, without the question mark.
    Query,
    /// `%Q`: a question mark if there is a query string.
    QuestionMark,
    /// `%r`: URL path of the script, without the query string.
    Path,
    /// `%R`: address of the client, or of the web server in front of weir.
    RemoteAddr,
    /// `%s`: status of the response.
    Status,
    /// `%t`: time at which the request arrived. The argument is a format of strftime(3). `None`: as in the combined
    /// format.
    Begun(Option<String>),
    /// `%T`: time at which the line is written. Argument: see [`Begun`](Self::Begun).
    Written(Option<String>),
    /// `%u`: user name that the client sent.
    User,
}

/// Kind of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuTime {
    /// User and system time.
    Total,
    /// User time: in the program.
    User,
    /// System time: in the kernel.
    System,
}

/// Unit of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// With three decimals.
    Seconds,
    /// With three decimals.
    Milliseconds,
    /// Without decimals.
    Microseconds,
}

/// Unit of an amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUnit {
    /// Bytes. All three units are rounded down to a whole number.
    Bytes,
    /// Of 1,024 bytes.
    Kilobytes,
    /// Of 1,048,576 bytes.
    Megabytes,
}

impl AccessFormat {
    /// Parses a format.
    pub(crate) fn parse(text: &str) -> Checked<Self> {
        if text.is_empty() {
            return wrong("this value is empty", "remove the key to get its default");
        }
        if text.chars().any(char::is_control) {
            return wrong("log lines cannot contain control characters", "");
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            literal.push_str(before);
            let (argument, after) = argument(after)?;
            let mut chars = after.chars();
            let Some(letter) = chars.next() else {
                return wrong("it ends with `%`", "a literal `%` is written `%%`");
            };
            rest = chars.as_str();
            if letter == '%' && argument.is_none() {
                literal.push('%');
                continue;
            }
            if !literal.is_empty() {
                pieces.push(FormatPiece::Text(core::mem::take(&mut literal)));
            }
            pieces.push(FormatPiece::Code(FormatCode::parse(letter, argument)?));
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(FormatPiece::Text(literal));
        }
        Ok(Self {
            pieces,
            text: text.to_owned(),
        })
    }
}

/// Writes the format as it is written in weir.toml.
impl fmt::Display for AccessFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FormatCode {
    fn parse(letter: char, argument: Option<&str>) -> Checked<Self> {
        let code = match (letter, argument) {
            ('C', argument) => Self::Cpu(one_of(letter, argument, &CPU_TIMES)?),
            ('d', argument) => Self::Duration(one_of(letter, argument, &TIME_UNITS)?),
            ('M', argument) => Self::Memory(one_of(letter, argument, &MEMORY_UNITS)?),
            ('e', Some(name)) if !name.is_empty() => Self::Parameter(name.to_owned()),
            ('o', Some(name)) if !name.is_empty() => Self::Header(name.to_owned()),
            ('e', _) => {
                return wrong(
                    "`%e` needs the name of a parameter",
                    "for example %{HTTP_HOST}e",
                );
            }
            ('o', _) => {
                return wrong(
                    "`%o` needs the name of a header",
                    "for example %{Content-Type}o",
                );
            }
            ('t', format) => Self::Begun(time_format(format)?),
            ('T', format) => Self::Written(time_format(format)?),
            (letter, argument) => {
                let Some((_, code)) = PLAIN.iter().find(|(known, _)| *known == letter) else {
                    return wrong(
                        format!("unknown code `%{letter}`"),
                        "known codes: %C %d %e %f %l %m %M %n %o %p %P %q %Q %r %R %s %t %T %u %%",
                    );
                };
                if argument.is_some() {
                    let hint = format!("write %{letter}");
                    return wrong(format!("`%{letter}` takes no braces"), hint);
                }
                code.clone()
            }
        };
        Ok(code)
    }
}

/// Splits `text` into the argument in braces at its beginning and the rest.
fn argument(text: &str) -> Checked<(Option<&str>, &str)> {
    let Some(inside) = text.strip_prefix('{') else {
        return Ok((None, text));
    };
    match inside.split_once('}') {
        Some((argument, rest)) => Ok((Some(argument), rest)),
        None => wrong("`%{` without `}`", "a literal `%` is written `%%`"),
    }
}

/// Finds the argument in `words`. Without an argument: the first of `words`.
fn one_of<T: Copy>(letter: char, argument: Option<&str>, words: &[(&str, T)]) -> Checked<T> {
    let known = |word: &str| {
        words
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(word))
    };
    match argument {
        None | Some("") => Ok(words[0].1),
        Some(word) => match known(word) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                wrong(
                    format!("`%{letter}` does not take {word:?}"),
                    format!("use one of {}", all.join(", ")),
                )
            }
        },
    }
}

fn time_format(format: Option<&str>) -> Checked<Option<String>> {
    let Some(format) = format.filter(|format| !format.is_empty()) else {
        return Ok(None);
    };
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        let mut chars = after.chars();
        match chars.next() {
            Some(letter) if CONVERSIONS.contains(letter) => rest = chars.as_str(),
            Some(letter) => {
                return wrong(
                    format!("unknown time conversion `%{letter}`"),
                    "strftime(3) lists them",
                );
            }
            None => return wrong("the format of a time ends with `%`", "write %% for it"),
        }
    }
    Ok(Some(format.to_owned()))
}

const CPU_TIMES: [(&str, CpuTime); 3] = [
    ("total", CpuTime::Total),
    ("user", CpuTime::User),
    ("system", CpuTime::System),
];

const TIME_UNITS: [(&str, TimeUnit); 7] = [
    ("seconds", TimeUnit::Seconds),
    ("milliseconds", TimeUnit::Milliseconds),
    ("milli", TimeUnit::Milliseconds),
    // PHP-FPM's original spelling.
    ("miliseconds", TimeUnit::Milliseconds),
    ("mili", TimeUnit::Milliseconds),
    ("microseconds", TimeUnit::Microseconds),
    ("micro", TimeUnit::Microseconds),
];

const MEMORY_UNITS: [(&str, MemoryUnit); 5] = [
    ("bytes", MemoryUnit::Bytes),
    ("kilobytes", MemoryUnit::Kilobytes),
    ("kilo", MemoryUnit::Kilobytes),
    ("megabytes", MemoryUnit::Megabytes),
    ("mega", MemoryUnit::Megabytes),
];

/// The codes that take no argument.
const PLAIN: [(char, FormatCode); 12] = [
    ('f', FormatCode::Script),
    ('l', FormatCode::ContentLength),
    ('m', FormatCode::Method),
    ('n', FormatCode::Pool),
    ('p', FormatCode::Pid),
    ('P', FormatCode::ParentPid),
    ('q', FormatCode::Query),
    ('Q', FormatCode::QuestionMark),
    ('r', FormatCode::Path),
    ('R', FormatCode::RemoteAddr),
    ('s', FormatCode::Status),
    ('u', FormatCode::User),
];

/// The conversions of strftime(3), without those for alternative formats of a locale.
const CONVERSIONS: &str = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        AccessFormat::parse(text).unwrap_err().message
    }

    #[test]
    fn codes_and_texts_alternate() {
        let format = AccessFormat::parse("100%% %R %{mili}d-%{HTTP_X}e%{%H:%M}t").unwrap();
        let code = FormatPiece::Code;
        let text = |text: &str| FormatPiece::Text(text.into());
        let expected = [
            text("100% "),
            code(FormatCode::RemoteAddr),
            text(" "),
            code(FormatCode::Duration(TimeUnit::Milliseconds)),
            text("-"),
            code(FormatCode::Parameter("HTTP_X".into())),
            code(FormatCode::Begun(Some("%H:%M".into()))),
        ];
        assert_eq!(format.pieces, expected);
        assert_eq!(format.to_string(), "100%% %R %{mili}d-%{HTTP_X}e%{%H:%M}t");
    }

    #[test]
    fn every_code_of_php_fpm_is_known() {
        for letter in "CdflmMnpPqQrRstTu".chars() {
            AccessFormat::parse(&format!("%{letter}")).unwrap();
        }
        for code in ["%{user}C", "%{Micro}d", "%{KILO}M", "%{a}e", "%{b}o"] {
            AccessFormat::parse(code).unwrap();
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(error("%x"), "unknown code `%x`");
        assert_eq!(error("a%"), "it ends with `%`");
        assert_eq!(error("%{a"), "`%{` without `}`");
        assert_eq!(error("%{a}"), "it ends with `%`");
        assert_eq!(error("%{a}m"), "`%m` takes no braces");
        assert_eq!(error("%{a}%"), "unknown code `%%`");
        assert_eq!(error("%e"), "`%e` needs the name of a parameter");
        assert_eq!(error("%{}o"), "`%o` needs the name of a header");
        assert_eq!(error("%{hours}d"), "`%d` does not take \"hours\"");
        assert_eq!(error("%{%Q}t"), "unknown time conversion `%Q`");
        assert_eq!(error("a\nb"), "log lines cannot contain control characters");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[%{}a-zA-Z ]{0,20}") {
            if let Ok(format) = AccessFormat::parse(&text) {
                prop_assert_eq!(format.to_string(), text);
            }
        }
    }
}
